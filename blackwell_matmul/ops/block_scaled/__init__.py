"""Block-scaled operands and their products: mxfp8, mxfp4 and nvfp4.

`formats.py` has torch's types of a format. `swizzling.py` orders scales in memory. `quantizing.py` has `quantize` and
`dequantize`, `by_kernel.py` runs the kernel of `quantize`. `recipes.py` reads torch's recipes of scales,
`block_operands.py` checks a product's operands. `product.py` multiplies, `quantized_product.py` multiplies to a
block-scaled result, and `scaled_grouped.py` multiplies groups of rows. `mode.py` replaces torch's `scaled_mm`.
"""
