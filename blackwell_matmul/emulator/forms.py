"""Forms of instructions: modifiers, types, operands, and the GPU that a form needs (PTX ISA, "Instruction Set").

An assembler refuses any other form, so the emulator refuses it before the kernel runs. Instructions that the table does
not have are left to their makers.
"""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from blackwell_matmul.emulator.parser import (
    SIZES_BYTES,
    Address,
    Negative,
    Not,
    Nothing,
    Number,
    Operand,
    Pair,
    Register,
    Statement,
    Symbol,
    Vector,
)
from blackwell_matmul.emulator.unknown import Malformed, Unknown

_TABLE = """
add sub : T=u16,s16,u64,s64 : T T T
add sub : sat? T=u32,s32,u16x2,s16x2,u8x4,s8x4 : T T T
add sub addc subc : cc T=$carry : T T T
addc subc : T=$carry : T T T
add sub : $rnd? ftz? sat? T=f32 : T T T
add sub : $rnd? ftz? T=f32x2 : T T T : 100
add sub : $rnd? T=f64 : T T T
add sub : rn? ftz? sat? T=f16,f16x2 : T T T
add sub : rn? T=bf16,bf16x2 : T T T
add sub : $rnd? sat? f32 T=f16,bf16 : f32 T f32 : 100
mul : lo,hi T=$int : T T T
mul : wide T=u16,s16,u32,s32 : W T T
mul : $rnd? ftz? sat? T=f32 : T T T
mul : $rnd? ftz? T=f32x2 : T T T : 100
mul : $rnd? T=f64 : T T T
mul : rn? ftz? sat? T=f16,f16x2 : T T T
mul : rn? T=bf16,bf16x2 : T T T
mad : lo,hi T=$int : T T T T
mad : hi sat T=s32 : T T T T
mad : wide T=u16,s16,u32,s32 : W T T W
mad madc : lo,hi cc T=$carry : T T T T
madc : lo,hi T=$carry : T T T T
mad : $rnd ftz? sat? T=f32 : T T T T
mad : $rnd T=f64 : T T T T
fma : $rnd ftz? sat? T=f32 : T T T T
fma : $rnd ftz? T=f32x2 : T T T T : 100
fma : $rnd T=f64 : T T T T
fma : rn ftz? sat,relu? T=f16,f16x2 : T T T T
fma : rn relu? T=bf16,bf16x2 : T T T T
fma : rn oob relu? T=f16,f16x2,bf16,bf16x2 : T T T T : 90
fma : $rnd sat? f32 T=f16,bf16 : f32 T T f32 : 100
mul24 : lo,hi T=u32,s32 : T T T
mad24 : lo,hi T=u32,s32 : T T T T
mad24 : hi sat T=s32 : T T T T
sad : T=$int : T T T T
div rem : T=$int : T T T
div : approx,full,$rnd ftz? T=f32 : T T T
div : $rnd T=f64 : T T T
abs neg : T=s16,s32,s64,s16x2,s8x4,f64,bf16,bf16x2 : T T
abs neg : ftz? T=f32,f16,f16x2 : T T
min max : T=$int,u16x2,u8x4,f64 : T T T
min max : relu? T=u16x2,s16x2,s32,u8x4,s8x4 : T T T
min max : ftz? NaN? xorsign? abs? T=f32,f16,f16x2 : T T T
min max : ftz? NaN? abs? T=f32 : T T T T : 100
min max : NaN? xorsign? abs? T=bf16,bf16x2 : T T T
popc clz : T=b32,b64 : u32 T
brev : T=b32,b64 : T T
bfind : shiftamt? T=u32,s32,u64,s64 : u32 T
fns : b32 : b32 b32 b32 s32
bfe : T=u32,s32,u64,s64 : T T u32 u32
bfi : T=b32,b64 : T T T u32 u32
szext : wrap,clamp T=u32,s32 : T T u32
bmsk : wrap,clamp b32 : b32 b32 b32
dp4a : T=u32,s32 U=u32,s32 : b32 T U b32
dp2a : lo,hi T=u32,s32 U=u32,s32 : b32 T U b32
testp : finite,infinite,number,notanumber,normal,subnormal T=f32,f64 : pred T
copysign : T=f32,f64 : T T T
rcp sqrt : approx,$rnd ftz? T=f32 : T T
rcp sqrt : $rnd T=f64 : T T
rcp : approx ftz T=f64 : T T
rsqrt : approx ftz? T=f32,f64 : T T
sin cos lg2 : approx ftz? T=f32 : T T
ex2 : approx ftz? T=f32 : T T
ex2 tanh : approx T=f16,f16x2 : T T
ex2 : approx ftz T=bf16,bf16x2 : T T
tanh : approx T=f32,bf16,bf16x2 : T T
set : $equal,$less and,or,xor? $to S=s16,s32,s64 : T S S pred?
set : $equal and,or,xor? $to S=b16,b32,b64 : T S S pred?
set : $equal,$less,lo,ls,hi,hs and,or,xor? $to S=u16,u32,u64 : T S S pred?
set : $float and,or,xor? ftz? $to S=f16,f16x2,f32,f64,bf16,bf16x2 : T S S pred?
setp : $equal,$less T=s16,s32,s64 : pred|pred T T
setp : $equal T=b16,b32,b64 : pred|pred T T
setp : $equal,$less,lo,ls,hi,hs T=u16,u32,u64 : pred|pred T T
setp : $float ftz? T=f16,f16x2,f32,f64,bf16,bf16x2 : pred|pred T T
setp : $equal,$less and,or,xor T=s16,s32,s64 : pred|pred T T pred
setp : $equal and,or,xor T=b16,b32,b64 : pred|pred T T pred
setp : $equal,$less,lo,ls,hi,hs and,or,xor T=u16,u32,u64 : pred|pred T T pred
setp : $float and,or,xor ftz? T=f16,f16x2,f32,f64,bf16,bf16x2 : pred|pred T T pred
selp : T=$any : T T T pred
slct : ftz? T=$any S=s32,f32 : T T T S
mov : T=pred,b128,f16,bf16,f16x2,bf16x2,$any : T{} T{}
mov : v2,v4 T=f16,bf16,f16x2,bf16x2,$any : T* T*
cvt : sat? T=$small S=$small : T* S*
cvt : rni,rzi,rmi,rpi ftz? sat? T=$small S=f16,bf16,f32,f64 : T* S*
cvt : $rnd ftz? sat? T=f16,bf16,f32,f64 S=$small : T* S*
cvt : $rnd ftz? sat? T=f16,bf16,f32 S=f64 : T* S*
cvt : $rnd ftz? sat? T=f16,bf16 S=f32,f16,bf16 : T* S*
cvt : ftz? sat? T=f32,f64 S=f16,bf16,f32 : T* S*
cvt : ftz? sat? T=f16,bf16 S=f16,bf16 : T* S*
cvt : sat? f64 f64 : f64 f64
cvt : rni,rzi,rmi,rpi ftz? sat? T=f16,bf16,f32,f64 S=f16,bf16,f32,f64 : T* S*
cvt : rn,rz relu? satfinite? T=f16,bf16 f32 : T* f32
cvt : rn,rz relu? satfinite? T=f16x2,bf16x2 f32 : T f32 f32
cvt : rs relu? satfinite? T=f16x2,bf16x2 f32 : T f32 f32 b32 : 100a
cvt : rna,rn,rz relu? satfinite? tf32 f32 : b32 f32
cvt : rn satfinite relu? e4m3x2,e5m2x2 f32 : b16 f32 f32 : 89
cvt : rn satfinite relu? e4m3x2,e5m2x2 f16x2 : b16 b32 : 89
cvt : rn satfinite relu? e4m3x2,e5m2x2,$sixes bf16x2 : b16 b32 : 100a
cvt : rn satfinite relu? $sixes f32 : b16 f32 f32 : 100a
cvt : rn satfinite relu? $sixes f16x2 : b16 b32 : 100a
cvt : rn satfinite relu? e2m1x2 f32 : b8 f32 f32 : 100a
cvt : rn satfinite relu? e2m1x2 f16x2,bf16x2 : b8 b32 : 100a
cvt : rs relu? satfinite e4m3x4,e5m2x4,e2m3x4,e3m2x4 f32 : b32 {} b32 : 100a
cvt : rs relu? satfinite e2m1x4 f32 : b16 {} b32 : 100a
cvt : rn relu? f16x2 e4m3x2,e5m2x2 : b32 b16 : 89
cvt : rn relu? satfinite? f16x2,bf16x2 e4m3x2,e5m2x2,$sixes : b32 b16 : 100a
cvt : rn relu? satfinite? f16x2,bf16x2 e2m1x2 : b32 b8 : 100a
cvt : rz,rp satfinite? ue8m0x2 f32 : b16 f32 f32 : 100a
cvt : rz,rp satfinite? ue8m0x2 bf16x2 : b16 b32 : 100a
cvt : rn bf16x2 ue8m0x2 : b32 b16 : 100a
cvt.pack : sat u16,s16 s32 : b32 s32 s32
cvt.pack : sat u2,s2,u4,s4,u8,s8 s32 b32 : b32 s32 s32 b32
and or xor : T=pred,b16,b32,b64 : T T T
not : T=pred,b16,b32,b64 : T T
cnot : T=b16,b32,b64 : T T
lop3 : b32 : b32 b32 b32 b32 #
lop3 : and,or b32 : b32|pred b32 b32 b32 # pred
shl : T=b16,b32,b64 : T T u32
shr : T=b16,b32,b64,$int : T T u32
shf : l,r wrap,clamp b32 : b32 b32 b32 u32
prmt : b32 f4e,b4e,rc8,ecl,ecr,rc16? : b32 b32 b32 b32
shfl : sync up,down,bfly,idx b32 : b32|pred b32 b32 b32 b32
ld : weak? $space? $cop? $hints T=$data : T* [] policy?
ld : weak? $space? $hints $vec T=$data : T* [] policy?
ld : volatile $space? $prefetch? $vec? T=$data : T* []
ld : relaxed,acquire $scope $space? $hints $vec? T=$data : T* [] policy?
ld : mmio relaxed sys global? T=$data : T* []
ld : global $cop? nc $hints $vec? T=$data : T* [] policy?
ld : weak? $space? $cop? $hints $vec? T=$data : T* [] policy?
ldu : global? $vec? T=$data : T* []
st : weak? $into? wb,cg,cs,wt? $hints $vec? T=$data : [] T* policy?
st : volatile $into? $vec? T=$data : [] T*
st : relaxed,release $scope $into? $hints $vec? T=$data : [] T* policy?
st : mmio relaxed sys global? T=$data : [] T*
st.bulk : weak? shared::cta? : [] . # : 100
atom : $how and,or,xor $hint? T=b32,b64 : T [] T policy?
atom : $how exch $hint? T=b32,b64,b128 : T [] T policy?
atom : $how cas $hint? T=b16,b32,b64,b128 : T [] T T policy?
atom : $how add $hint? T=u32,s32,u64,f32,f64 : T [] T policy?
atom : $how inc,dec $hint? T=u32 : T [] T policy?
atom : $how min,max $hint? T=u32,s32,u64,s64 : T [] T policy?
atom : $how add noftz $hint? T=f16,bf16,f16x2,bf16x2 : T [] T policy?
atom : $how add $hint? v2,v4 T=f32 : T* [] T* policy? : 90
atom : $how add,min,max noftz $hint? $vec T=f16,bf16,f16x2,bf16x2 : T* [] T* policy? : 90
red : $how and,or,xor $hint? T=b32,b64 : [] T policy?
red : $how add $hint? T=u32,s32,u64,f32,f64 : [] T policy?
red : $how inc,dec $hint? T=u32 : [] T policy?
red : $how min,max $hint? T=u32,s32,u64,s64 : [] T policy?
red : $how add noftz $hint? T=f16,bf16,f16x2,bf16x2 : [] T policy?
red : $how add $hint? v2,v4 T=f32 : [] T* policy? : 90
red : $how add,min,max noftz $hint? $vec T=f16,bf16,f16x2,bf16x2 : [] T* policy? : 90
prefetch : global,local? L1,L2 : []
prefetch : global? L2::evict_last,L2::evict_normal : []
prefetch : param,const? tensormap : [] : 90
prefetchu : L1 : []
applypriority : global? L2::evict_normal : [] #=128
discard : global? L2 : [] #=128
isspacep : $space,param::entry : pred .
cvta : to? const,global,local,param,param::entry,$shared T=u32,u64 : T T
mapa : shared::cluster? T=u32,u64 : T . u32 : 90
getctarank : shared::cluster? T=u32,u64 : u32 . : 90
bra : uni? : label
ret : uni? :
exit trap brkpt : :
nanosleep : u32 : <u32
pmevent : mask? : #
setmaxnreg : inc,dec sync aligned u32 : #=24:256:8 : 90a
bar : cta? sync : <u32 u32?
bar barrier : cta? arrive aligned? : <u32 u32
barrier : cta? sync aligned? : <u32 u32?
bar barrier : cta? red popc aligned? u32 : u32 u32 pred
bar barrier : cta? red popc aligned? u32 : u32 u32 u32 pred
bar barrier : cta? red and,or aligned? pred : pred u32 pred
bar barrier : cta? red and,or aligned? pred : pred u32 u32 pred
bar : warp sync : <b32
barrier.cluster : arrive release,relaxed? aligned? : : 90
barrier.cluster : wait acquire? aligned? : : 90
membar : cta,gl,sys :
membar fence : proxy alias :
fence : sc,acq_rel,acquire,release? $scope :
fence : acquire,release sync_restrict::shared::cluster,sync_restrict::shared::cta cluster : : 90
fence : mbarrier_init release cluster : : 90
membar fence : proxy async global,shared::cta,shared::cluster? :
fence : proxy tensormap::generic release $scope : : 90
fence : proxy tensormap::generic acquire $scope : [] # : 90
fence : proxy async::generic acquire,release sync_restrict::shared::cluster,sync_restrict::shared::cta cluster : : 90
vote : sync all,any,uni pred : pred pred b32
vote : sync ballot b32 : b32 pred b32
match : any sync T=b32,b64 : b32 T b32
match : all sync T=b32,b64 : b32|pred T b32
activemask : b32 : b32
redux : sync add,min,max T=u32,s32 : T T b32
redux : sync and,or,xor b32 : b32 b32 b32
redux : sync min,max abs? NaN? T=f32 : T T b32 : 100a
elect : sync : b32&pred b32 : 90
griddepcontrol : launch_dependents,wait : : 90
mbarrier.init : shared,shared::cta? b64 : [] b32
mbarrier.inval : shared,shared::cta? b64 : []
mbarrier.expect_tx mbarrier.complete_tx : relaxed? cta,cluster? $shared? b64 : [] u32 : 90
mbarrier.arrive mbarrier.arrive_drop : release,relaxed? cta,cluster? shared,shared::cta? b64 : b64 [] u32?
mbarrier.arrive mbarrier.arrive_drop : release,relaxed? cta,cluster? shared,shared::cta? noComplete b64 : b64 [] u32
mbarrier.arrive mbarrier.arrive_drop : release,relaxed? cta,cluster? shared::cluster b64 : _ [] u32? : 90
mbarrier.arrive mbarrier.arrive_drop : expect_tx release,relaxed? cta,cluster? shared,shared::cta? b64 : b64 [] u32 : 90
mbarrier.arrive mbarrier.arrive_drop : expect_tx release,relaxed? cta,cluster? shared::cluster b64 : _ [] u32 : 90
mbarrier.arrive mbarrier.arrive_drop : release,relaxed? cta,cluster? $shared? b64 : [] u32? : 90
mbarrier.arrive mbarrier.arrive_drop : expect_tx release,relaxed? cta,cluster? $shared? b64 : [] u32 : 90
mbarrier.test_wait mbarrier.try_wait : acquire,relaxed? cta,cluster? shared,shared::cta? b64 : pred [] b64 u32?
mbarrier.test_wait mbarrier.try_wait : parity acquire,relaxed? cta,cluster? shared,shared::cta? b64 : pred [] u32 u32?
cp.async : ca,cg $shared global $hint? $prefetch? : [] [] # .? .?
cp.async.commit_group cp.async.wait_all cp.async.bulk.commit_group : :
cp.async.wait_group : : #
cp.async.bulk.wait_group : read? : # : 90
wgmma.wait_group : sync aligned : # : =90a
wgmma.fence wgmma.commit_group : sync aligned : : =90a
mma : sp,sp::ordered_metadata ... : ...
mma : sync aligned m8n8k4 row,col row,col f16,f32 f16 f16 f16,f32 : ...
mma : sync aligned m16n8k8,m16n8k16 row col f16,f32 f16 f16 f16,f32 : ...
mma : sync aligned m16n8k8,m16n8k16 row col f32 bf16 bf16 f32 : ...
mma : sync aligned m16n8k4,m16n8k8 row col f32 tf32 tf32 f32 : ...
mma : sync aligned m16n8k16,m16n8k32 row col f16,f32 e4m3,e5m2 e4m3,e5m2 f16,f32 : ... : 89
mma : sync aligned m16n8k32 row col kind::f8f6f4 f16,f32 $eight $eight f16,f32 : ... : 100
mma : sync aligned m16n8k32 row col kind::mxf8f6f4 block_scale scale_vec::1X? f32 $eight $eight f32 ue8m0 : ... : 100
mma : sync aligned m16n8k64 row col $four block_scale $vecs? f32 e2m1 e2m1 f32 ue8m0,ue4m3 : ... : 100
mma : sync aligned m8n8k16,m16n8k16,m16n8k32 row col satfinite? s32 s8,u8 s8,u8 s32 : ...
mma : sync aligned m8n8k32,m16n8k32,m16n8k64 row col satfinite? s32 s4,u4 s4,u4 s32 : ...
mma : sync aligned m8n8k128,m16n8k128,m16n8k256 row col s32 b1 b1 s32 xor,and popc : ...
mma : sync aligned m8n8k4,m16n8k4,m16n8k8,m16n8k16 row col $rnd? f64 f64 f64 f64 : ...
ldmatrix : sync aligned m8n8 x1,x2,x4 trans? shared,shared::cta? b16 : {} []
ldmatrix : sync aligned m8n16 x1,x2,x4 shared,shared::cta? b8x16 b4x16_p64,b6x16_p32 : {} [] : 100a
ldmatrix : sync aligned m16n16 x1,x2 trans shared,shared::cta? b8 : {} [] : 100a
ldmatrix : sync aligned m16n16 x1,x2 trans shared,shared::cta? b8x16 b4x16_p64,b6x16_p32 : {} [] : 100a
stmatrix : sync aligned m8n8 x1,x2,x4 trans? shared,shared::cta? b16 : [] {} : 90
stmatrix : sync aligned m16n8 x1,x2,x4 trans shared,shared::cta? b8 : [] {} : 100a
movmatrix : sync aligned m8n8 trans b16 : b32 b32
stacksave : T=u32,u64 : T
stackrestore : T=u32,u64 : <T
alloca : T=u32,u64 : T T #?
cp.async.mbarrier mma.sp mma.sp::ordered_metadata : ... : ...
st.async red.async cp.reduce.async.bulk : ... : ... : 90
cp.async.bulk : shared::cluster,shared::cta global $bytes $multicast? ignore_oob? $hint? : ... : 90
cp.async.bulk : shared::cluster shared::cta $bytes : ... : 90
cp.async.bulk : global shared::cta bulk_group $hint? cp_mask? : ... : 90
cp.async.bulk.prefetch : L2 global $hint? : ... : 90
cp.async.bulk.prefetch.tensor : $dims L2 global $tile? $hint? : ... : 90
cp.async.bulk.tensor : $dims shared::cluster,shared::cta global $bytes $tile? $ctas? $hint? $multicast? : ... : 90
cp.async.bulk.tensor : $dims global shared::cta bulk_group $tile? $hint? : ... : 90
clusterlaunchcontrol.try_cancel clusterlaunchcontrol.query_cancel : ... : ... : 100
tcgen05.alloc : $ctas sync aligned shared::cta? b32 : [] u32 : 100a
tcgen05.dealloc : $ctas sync aligned b32 : <b32 u32 : 100a
tcgen05.relinquish_alloc_permit : $ctas sync aligned : : 100a
tcgen05.ld : sync aligned $shape $times pack::16b? b32 : {} [] #? : 100a
tcgen05.ld : red sync aligned $shape $times min,max abs? NaN? u32,s32,f32 : {} . [] #? : 100a
tcgen05.st : sync aligned $shape $times unpack::16b? b32 : ... : 100a
tcgen05.wait::ld tcgen05.wait::st : sync aligned : : 100a
tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync : : : 100a
tcgen05.commit : $ctas mbarrier::arrive::one shared::cluster? multicast::cluster? b64 : [] b16? : 100a
tcgen05.shift : $ctas down : [] : 100a
tcgen05.mma tcgen05.cp : ... : ... : 100a
"""
"""A form a line: names, modifiers, operands and the GPU, as `OpcodeForm` has them.

A modifier is one of several words, in any order; `?`: may be absent; `T=`: is the type T; `...`: any words. Operands,
the result first, unless `<` precedes: a type; `T*`: of T or wider, or with .v2 and so on a vector; `T{}`: of T, or a
vector that makes up T; `[]`: an address; `#`: a number; `#=24:256:8`: from 24 to 256 by 8; `{}`: a vector; `_`:
nothing; `.`: any; `...`: any operands; `a|b`: a with or without b; `a&b`: with b. GPU: 90 for sm_90 and later, 100a
for sm_100a or sm_100f and later, =90a for sm_90a alone.
"""

_MACROS = {
    "$int": "u16,s16,u32,s32,u64,s64",
    "$carry": "u32,s32,u64,s64",
    "$any": "b16,b32,b64,u16,s16,u32,s32,u64,s64,f32,f64",
    "$data": "b8,b16,b32,b64,b128,u8,u16,u32,u64,s8,s16,s32,s64,f32,f64",
    "$to": "T=u16,s16,u32,s32,f32,f16,bf16,f16x2,bf16x2",
    "$rnd": "rn,rz,rm,rp",
    "$equal": "eq,ne",
    "$less": "lt,le,gt,ge",
    "$float": "eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan",
    "$space": "const,global,local,param,param::entry,param::func,shared,shared::cta,shared::cluster",
    "$into": "global,local,param,param::func,shared,shared::cta,shared::cluster",
    "$shared": "shared,shared::cta,shared::cluster",
    "$scope": "cta,cluster,gpu,sys",
    "$how": "relaxed,acquire,release,acq_rel? cta,cluster,gpu,sys? global,shared,shared::cta,shared::cluster?",
    "$cop": "ca,cg,cs,lu,cv",
    "$hints": "L1::evict_normal,L1::evict_unchanged,L1::evict_first,L1::evict_last,L1::no_allocate? "
    "L2::evict_normal,L2::evict_first,L2::evict_last? L2::cache_hint? L2::64B,L2::128B,L2::256B?",
    "$hint": "L2::cache_hint",
    "$prefetch": "L2::64B,L2::128B,L2::256B",
    "$vec": "v2,v4,v8",
    "$multicast": "multicast::cluster",
    "$bytes": "mbarrier::complete_tx::bytes",
    "$dims": "1d,2d,3d,4d,5d",
    "$tile": "tile,tile::gather4,tile::scatter4,im2col,im2col::w,im2col::w::128,im2col_no_offs",
    "$ctas": "cta_group::1,cta_group::2",
    "$shape": "16x64b,16x128b,16x256b,32x32b,16x32bx2",
    "$times": "x1,x2,x4,x8,x16,x32,x64,x128",
    "$small": "u8,s8,u16,s16,u32,s32,u64,s64",
    "$sixes": "e2m3x2,e3m2x2",
    "$eight": "e4m3,e5m2,e2m3,e3m2,e2m1",
    "$four": "kind::mxf4,kind::mxf4nvf4",
    "$vecs": "scale_vec::2X,scale_vec::4X",
}


class Slot(NamedTuple):
    """A modifier: one of these words. name: of the type that the word is, or "". optional: may be absent."""

    words: frozenset[str]
    name: str
    optional: bool


_ANY = Slot(frozenset(["..."]), "", False)


class OpcodeForm(NamedTuple):
    """A line of the table. slots: its modifiers. operands: their kinds. gpu: "" for any."""

    slots: tuple[Slot, ...]
    operands: tuple[str, ...]
    gpu: str


class Match(NamedTuple):
    """A form that has an opcode's modifiers. types: the type of each name."""

    form: OpcodeForm
    types: dict[str, str]


@functools.cache
def _forms() -> dict[str, list[OpcodeForm]]:
    """Return the forms of each instruction by its name."""
    text = _TABLE
    for macro in sorted(_MACROS, key=len, reverse=True):
        text = text.replace(macro, _MACROS[macro])
    found: dict[str, list[OpcodeForm]] = {}
    for line in text.strip().splitlines():
        names, slots, operands, gpu = [*re.split(r"(?<= ):(?: |$)", line), "", ""][:4]
        for name in names.split():
            found.setdefault(name, []).append(
                OpcodeForm(tuple(map(_slot, slots.split())), tuple(operands.split()), gpu.strip())
            )
    return found


def _slot(text: str) -> Slot:
    name, _, words = text.rstrip("?").rpartition("=")
    return Slot(frozenset(words.split(",")), name, text.endswith("?"))


MOST_NAME_WORDS = 5
"""Maximum words of a name in the table, those of "cp.async.bulk.prefetch.tensor"."""


@functools.lru_cache(maxsize=4096)
def matches(opcode: str) -> tuple[str, tuple[Match, ...]] | None:
    """Return the instruction's name, and its forms that have these modifiers; None for one that is not in the table."""
    words = opcode.split(".")
    for count in range(min(len(words), MOST_NAME_WORDS), 0, -1):
        name = ".".join(words[:count])
        if name in _forms():
            found = ((form, _types(form, words[count:])) for form in _forms()[name])
            return name, tuple(Match(form, types) for form, types in found if types is not None)
    return None


def _types(form: OpcodeForm, words: list[str]) -> dict[str, str] | None:
    """Return the type of each name if the form has exactly these modifiers, else None."""
    left, types = list(form.slots), dict[str, str]()
    for word in words:
        slot = next((each for each in left if word in each.words), None)
        if slot is None and form.slots[-1:] == (_ANY,):
            continue
        if slot is None:
            return None
        left.remove(slot)
        if slot.name:
            types[slot.name] = word
    return types if all(each.optional or each == _ANY for each in left) else None


NEWEST = 9, 1
"""Version of the PTX ISA whose forms the table has."""


def verify(each: Statement, target: str, version: tuple[int, int] = NEWEST) -> None:
    """Check an instruction; Malformed for a form that PTX or the target does not have, Unknown for a new modifier, and
    in code of a newer version for any form that the table lacks.
    """
    key = each.opcode, target, *map(_shape, each.operands)
    if key not in _PASSED:
        _verify(each, target, version > NEWEST)
        if len(_PASSED) >= MOST_PASSED:
            _PASSED.clear()
        _PASSED.add(key)


MOST_PASSED = 1 << 16
_PASSED: set[tuple[Any, ...]] = set()
"""Opcodes with a target and the shapes of their operands, which are forms; at most MOST_PASSED are kept."""


def _shape(operand: Operand) -> Any:
    """Return what tells if an operand fits: types and numbers, but not which register."""
    if isinstance(operand, Register):
        return operand.type
    if isinstance(operand, Vector):
        return tuple(map(_shape, operand.parts))
    if isinstance(operand, Address):
        return Address, operand.base.type if isinstance(operand.base, Register) else ""
    if isinstance(operand, Number):
        return operand.is_bits, operand.value.__class__, operand.value
    parts = [getattr(operand, name) for name in ("first", "second", "operand") if hasattr(operand, name)]
    return operand.__class__, *map(_shape, parts)


def _verify(each: Statement, target: str, is_newer: bool) -> None:
    known = matches(each.opcode)
    if known is None:
        return
    name, found = known
    if not found:
        raise Unknown(f"{each.opcode} is not emulated") if is_newer else _no_form(name, each)
    complaints = [_complaint(match, each) for match in found]
    if all(complaints):
        raise Malformed(str(complaints[0]))
    nbytes = max((_vector_bytes(match, each) for match in found), default=0)
    if nbytes > 32 or (nbytes > 16 and not _has(target, "100")):
        most = 32 if _has(target, "100") else 16
        raise Malformed(f"{name} of {nbytes} bytes; on {target} a vector has up to {most}")
    needed = [match.form.gpu for match, complaint in zip(found, complaints) if not complaint]
    if not any(_has(target, gpu) for gpu in needed):
        raise Malformed(f"{name} in this form needs sm_{needed[0].strip('=')}, and this PTX is for {target}")


def _vector_bytes(match: Match, each: Statement) -> int:
    """Return the bytes of a vector that a lane moves, 0 for none."""
    return each.vector_elements * SIZES_BYTES[match.types["T"]] if each.vector_elements and "T" in match.types else 0


def _no_form(name: str, each: Statement) -> Malformed | Unknown:
    words = {word for forms in _forms().values() for form in forms for slot in form.slots for word in slot.words}
    mine = {word for form in _forms()[name] for slot in form.slots for word in slot.words}
    for word in each.opcode.removeprefix(name).split(".")[1:]:
        if word not in mine:
            return Malformed(f"{name} has no .{word}") if word in words else Unknown(f"{each.opcode} is not emulated")
    return Malformed(f"{each.opcode} is no form of {name}: a modifier is missing, or two exclude each other")


def _has(target: str, gpu: str) -> bool:
    """Return true if a target such as sm_100a has what a GPU of this name has."""
    number = int(target.removeprefix("sm_").rstrip("af") or 0)
    least = int(gpu.strip("=a") or 0)
    return (number == least if "=" in gpu else number >= least) and ("a" not in gpu or target[-1] in "af")


# --- operands


def _complaint(match: Match, each: Statement) -> str:
    """Return what is wrong with the operands for a form; "" for nothing."""
    wanted, given = match.form.operands, each.operands
    if wanted == ("...",):
        return ""
    least = sum(not kind.endswith("?") for kind in wanted)
    if not least <= len(given) <= len(wanted):
        count = f"{least}" if least == len(wanted) else f"{least} to {len(wanted)}"
        return f"{each.opcode.split('.')[0]} takes {count} operands, and {len(given)} are given"
    for place, (kind, operand) in enumerate(zip(wanted, given)):
        told = _unfit(kind.strip("<?"), operand, match, each, place == 0 and kind[0] not in "[<#")
        if told:
            return told
    return ""


def _unfit(kind: str, operand: Operand, match: Match, each: Statement, is_result: bool) -> str:
    first, mark, second = kind.partition("|") if "|" in kind else kind.partition("&")
    if isinstance(operand, Pair) and second:
        return _unfit(first, operand.first, match, each, True) or _unfit(second, operand.second, match, each, True)
    if mark == "&":
        return f"{each.opcode} has two results, d|p"
    if first == ".":
        return ""
    if first in ("[]", "{}", "#", "_", "label") or first.startswith("#="):
        return _unlike(first, operand, each)
    type = {"policy": "b64", "W": _wide(match.types.get("T", ""))}.get(first.rstrip("*"), "")
    type = type or match.types.get(first.rstrip("*"), first.rstrip("*"))
    if first.endswith("{}"):
        return _misfit_whole(match.types["T"], operand, each, is_result)
    count = (each.vector_elements if first.endswith("*") else 0) or 1
    parts = operand.parts if first.endswith("*") and isinstance(operand, Vector) else (operand,)
    if len(parts) != count:
        return f"{each.opcode} takes {count} registers, and {len(parts)} are given"
    return next((told for part in parts if (told := _misfit(type, part, each, is_result, first.endswith("*")))), "")


def _misfit_whole(type: str, operand: Operand, each: Statement, is_result: bool) -> str:
    """Check a value, or a vector of registers that make it up."""
    if not isinstance(operand, Vector):
        return _misfit(type, operand, each, is_result, False)
    size, parts = SIZES_BYTES[type], operand.parts
    sizes = {SIZES_BYTES[part.type] for part in parts if isinstance(part, Register)}
    if len(parts) not in (2, 4) or sizes - {size // len(parts)}:
        return f"a vector of {len(parts)} is no .{type} of {size} bytes: its parts are two or four, and of equal size"
    return ""


def _wide(type: str) -> str:
    return f"{type[0]}{2 * int(type[1:])}" if type[1:].isdigit() else ""


_PREDICATE = "an operand is a predicate where .{} is expected"


def _unlike(kind: str, operand: Operand, each: Statement) -> str:
    """Check an operand that is no value of a type."""
    if kind == "[]" and isinstance(operand, Address):
        base = operand.base
        is_bad = isinstance(base, Register) and base.type[0] not in "bus"
        if not is_bad or not isinstance(base, Register):
            return ""
        return f"a register .{base.type} is no address" if base.type != "pred" else _PREDICATE.format("b64")
    kinds = {"{}": (Vector, Register), "_": (Nothing,), "label": (Symbol,), "[]": ()}.get(kind, (Number,))
    if not isinstance(operand, kinds):
        names = {"[]": "an address", "{}": "a vector", "_": "no result, _,", "label": "a label"}
        return f"{each.opcode} takes {names.get(kind, 'a number')}, where {shown(operand)} is given"
    if kind.startswith("#=") and isinstance(operand, Number):
        low, high, step = (*map(int, kind[2:].split(":")), 0, 0)[:3] if ":" in kind else (int(kind[2:]),) * 2 + (1,)
        if not low <= operand.value <= high or operand.value % (step or 1):
            return (
                f"{each.opcode} takes {kind[2:].replace(':', ' to ', 1).replace(':', ' by ')} and not {operand.value}"
            )
    return ""


def _misfit(type: str, operand: Operand, each: Statement, is_result: bool, may_be_wider: bool) -> str:
    """Check a value of a type, or a register that gets one."""
    if isinstance(operand, Register):
        return _misfit_register(type, operand.type, each, is_result, may_be_wider)
    if isinstance(operand, Nothing):
        return ""
    if is_result:
        return f"the result of {each.opcode} goes to {shown(operand)}, which is no register"
    if isinstance(operand, Not) and type == "pred":
        return _misfit(type, operand.operand, each, False, False)
    if isinstance(operand, Number):
        return _misfit_number(type, operand)
    if isinstance(operand, Symbol) or (isinstance(operand, Address) and isinstance(operand.base, Symbol)):
        return ""
    return f"an operand {shown(operand)} where .{type} is expected"


def _misfit_number(type: str, number: Number) -> str:
    is_float = number.is_bits or isinstance(number.value, float)
    if type in ("f32", "f64", "f16", "bf16") and not is_float:
        return f"{number.value} is no float, which .{type} takes"
    if type[0] in "us" and is_float:
        text = f"the bits {number.value:#x} of a float are" if number.is_bits else f"{number.value} is"
        return f"{text} no integer, which .{type} takes"
    return ""


def _misfit_register(type: str, own: str, each: Statement, is_result: bool, may_be_wider: bool) -> str:
    if (own == "pred") != (type == "pred"):
        other = "is no predicate" if type == "pred" else "is a predicate"
        if is_result:
            return f"the result of {each.opcode} goes to a register .{own}, which {other}"
        return f"an operand of type .{own} is no predicate" if type == "pred" else _PREDICATE.format(type)
    size, mine = SIZES_BYTES[type], SIZES_BYTES[own]
    if mine < size and is_result:
        return f"the result of {each.opcode} does not fit into a register .{own}"
    if mine != size and not (may_be_wider and mine > size):
        return f"an operand has {mine} bytes where .{type} is expected"
    plain = "b" in (type[0], own[0]) or "x2" in type + own or (type[0] in "us") == (own[0] in "us")
    return "" if plain else f"a register .{own} where .{type} is expected"


def shown(operand: Operand) -> str:
    """Return an operand as PTX writes it, as far as a message needs."""
    if isinstance(operand, Register):
        return f"a register .{operand.type}"
    if isinstance(operand, (Number, Symbol)):
        return str(operand.value if isinstance(operand, Number) else operand.name)
    return {Vector: "{...}", Address: "[...]", Pair: "a pair d|p", Not: "!...", Negative: "-..."}.get(
        type(operand), "_"
    )
