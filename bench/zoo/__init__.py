"""The zoo: public bugs of Hopper and Blackwell kernels, each in a few lines, with its repair and its source."""
