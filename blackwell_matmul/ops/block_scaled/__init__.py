"""Block-scaled operands and their products: mxfp8, mxfp4 and nvfp4.

`formats.py` has torch's types of a format. `swizzling.py` orders scales in memory. `quantizing.py` has `quantize` and
`dequantize`, `by_kernel.py` the kernel of `quantize`. `recipes.py` reads torch's recipes of scales, `block_operands.py`
checks the operands of a product, and `product.py` multiplies, `quantized_product.py` to a block-scaled result, and
`scaled_grouped.py` each group of rows. `mode.py` puts `scaled_mm` in the place of torch's.
"""
