/*
 * A stand-in for libcuda.so.1: it loads, knows the version of CUDA, and finds no more than that it
 * is there. What it can do is told by the description of the NVML stand-in, not here.
 */
int cuInit(unsigned flags) { return flags ? 1 : 0; }

int cuDriverGetVersion(int *version)
{
    *version = 12040;
    return 0;
}
