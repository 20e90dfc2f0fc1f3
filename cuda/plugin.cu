/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.cu: the table of ntx_cuda.h, by the CUDA runtime. Every call is checked, and its error is kept as text. A
 * kernel's first error shows at a later call: CUDA reports it there. cuBLAS is loaded at run time, so that the plug-in
 * also loads where only the driver is installed. */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/launch.h"
#include "cuda/plugin.h"

#define WORKSPACE (32u << 20)

struct blas {
    void *library;
    cublasHandle_t handle;
    void *workspace;
    bool refused;
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, const void *, cudaDataType, int, const void *, void *,
                           cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
};

struct ntx_gpu {
    int ordinal;
    struct ntx_card card;
    struct blas blas;
    char error[256];
};

struct ntx_gpu_stream {
    struct ntx_gpu *g;
    cudaStream_t native;
};

struct ntx_gpu_event {
    struct ntx_gpu *g;
    cudaEvent_t native;
};

struct ntx_gpu_graph {
    struct ntx_gpu *g;
    cudaGraphExec_t native;
};

static int check_cuda(struct ntx_gpu *g, cudaError_t e, const char *what)
{
    size_t free_bytes = 0, total = 0;
    if (e == cudaSuccess)
        return 0;
    if (e == cudaErrorMemoryAllocation && cudaMemGetInfo(&free_bytes, &total) == cudaSuccess)
        snprintf(g->error, sizeof g->error, "%s: %s: %zu bytes of %zu are free", what, cudaGetErrorString(e),
                 free_bytes, total);
    else
        snprintf(g->error, sizeof g->error, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
    cudaGetLastError(); /* clears the error; a lost device fails again by itself */
    return e == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

cudaStream_t ntx__native(struct ntx_gpu_stream *s) { return s->native; }

struct ntx_card ntx__card(const struct ntx_gpu_stream *s) { return s->g->card; }

int ntx__allow_shared(struct ntx_gpu_stream *s, const void *kernel, const char *name, uint32_t bytes)
{
    return check_cuda(s->g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                      name);
}

int ntx__launched(struct ntx_gpu_stream *s, const char *kernel) { return check_cuda(s->g, cudaGetLastError(), kernel); }

/* Binds the device to the calling thread, which may change from call to call. Calls that have no stream begin with
 * this. */
static int bind_device(struct ntx_gpu *g)
{
    return check_cuda(g, cudaSetDevice(g->ordinal), "cannot select the device");
}

/* ---- cuBLAS: loaded with the device, so that its memory is in use before free memory is counted */

static int find_symbols(struct ntx_gpu *g)
{
    struct blas *b = &g->blas;
    const struct {
        const char *name;
        void *to;
    } all[] = {
        {"cublasCreate_v2", &b->create},
        {"cublasDestroy_v2", &b->destroy},
        {"cublasSetStream_v2", &b->set_stream},
        {"cublasSetWorkspace_v2", &b->set_workspace},
        {"cublasGemmEx", &b->gemm},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*(void **)all[i].to = dlsym(b->library, all[i].name))) {
            snprintf(g->error, sizeof g->error, "cuBLAS has no %s", all[i].name);
            return -ENOSYS;
        }
    return 0;
}

/* -ENOSYS: cuBLAS cannot be used; the error says why. */
static int open_blas(struct ntx_gpu *g)
{
    struct blas *b = &g->blas;
    char name[32];
    int rc;
    if (b->handle)
        return 0;
    if (b->refused)
        return -ENOSYS;
    b->refused = true; /* until all steps succeed; it is tried once */
    snprintf(name, sizeof name, "libcublas.so.%d", CUBLAS_VER_MAJOR);
    if (!b->library && !(b->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))) {
        snprintf(g->error, sizeof g->error, "%.200s", dlerror());
        return -ENOSYS;
    }
    if ((rc = find_symbols(g)))
        return rc;
    if (!b->workspace && check_cuda(g, cudaMalloc(&b->workspace, WORKSPACE), "no device memory for cuBLAS"))
        return -ENOSYS;
    if (b->create(&b->handle) != CUBLAS_STATUS_SUCCESS) {
        snprintf(g->error, sizeof g->error, "cuBLAS does not start");
        b->handle = NULL;
        return -ENOSYS;
    }
    b->refused = false;
    return 0;
}

/* ---- the device */

static int no_device(char *why, size_t n, cudaError_t e)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver)
        snprintf(why, n, "no NVIDIA driver is installed");
    else if (driver / 1000 < runtime / 1000)
        snprintf(why, n, "the NVIDIA driver is too old: it knows CUDA %d.%d, and %d.0 is needed", driver / 1000,
                 driver % 1000 / 10, runtime / 1000);
    else
        snprintf(why, n, "no CUDA device: %s", cudaGetErrorString(e));
    return -ENODEV;
}

static int cuda_open(uint32_t ordinal, struct ntx_gpu **out, char *why, size_t n)
{
    int count = 0, major = 0, minor = 0, processors = 0, shared = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || !count)
        return no_device(why, n, e == cudaSuccess ? cudaErrorNoDevice : e);
    if ((int)ordinal >= count) {
        snprintf(why, n, "there is no device %u: %d are there", ordinal, count);
        return -ENODEV;
    }
    if ((e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)ordinal)) != cudaSuccess ||
        (e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, (int)ordinal)) != cudaSuccess ||
        (e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, (int)ordinal)) != cudaSuccess ||
        (e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)ordinal)) != cudaSuccess)
        return no_device(why, n, e);
    if (major * 10 + minor < 75) {
        snprintf(why, n, "the device has compute capability %d.%d, and 7.5 is needed", major, minor);
        return -ENODEV;
    }
    struct ntx_gpu *g = (struct ntx_gpu *)calloc(1, sizeof *g);
    if (!g) {
        snprintf(why, n, "no memory");
        return -ENOMEM;
    }
    g->ordinal = (int)ordinal;
    g->card.processors = (uint32_t)processors;
    g->card.shared = (uint32_t)shared;
    check_cuda(g, cudaSetDeviceFlags(cudaDeviceScheduleSpin),
               "cannot choose how to wait"); /* many waits of microseconds per token; speed only */
    int rc = bind_device(g);
    if (!rc)
        rc = check_cuda(g, cudaFree(NULL), "cannot make a context");
    if (rc) {
        snprintf(why, n, "%s", g->error);
        free(g);
        return rc;
    }
    open_blas(g); /* without it prompt rows are multiplied exactly, like decode rows */
    *out = g;
    return 0;
}

static void cuda_close(struct ntx_gpu *g)
{
    if (!g)
        return;
    bind_device(g);
    if (g->blas.handle)
        g->blas.destroy(g->blas.handle);
    check_cuda(g, cudaFree(g->blas.workspace), "giving device memory back");
    if (g->blas.library)
        dlclose(g->blas.library);
    free(g);
}

static int cuda_info(struct ntx_gpu *g, struct ntx_gpu_info *out)
{
    struct cudaDeviceProp p;
    size_t free_bytes, total;
    int driver = 0, rc = bind_device(g);
    if (rc || (rc = check_cuda(g, cudaGetDeviceProperties(&p, g->ordinal), "device properties")) ||
        (rc = check_cuda(g, cudaMemGetInfo(&free_bytes, &total), "device memory")))
        return rc;
    cudaDriverGetVersion(&driver);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%.63s", p.name);
    out->total = total;
    out->free = free_bytes;
    out->capability = (uint32_t)(p.major * 10 + p.minor);
    out->driver = (uint32_t)driver;
    out->processors = (uint32_t)p.multiProcessorCount;
    out->integrated = p.integrated ? 1 : 0;
    return 0;
}

static const char *cuda_error(const struct ntx_gpu *g) { return g->error; }

/* ---- memory */

static int cuda_alloc(struct ntx_gpu *g, uint64_t bytes, void **out)
{
    char what[64];
    void *p;
    int rc = bind_device(g);
    snprintf(what, sizeof what, "no device memory for %llu bytes", (unsigned long long)bytes);
    if (!rc && !(rc = check_cuda(g, cudaMalloc(&p, bytes ? bytes : 1), what)))
        *out = p;
    return rc;
}

static void cuda_free(struct ntx_gpu *g, void *p)
{
    bind_device(g);
    check_cuda(g, cudaFree(p), "giving device memory back");
}

static int cuda_host_alloc(struct ntx_gpu *g, uint64_t bytes, void **out)
{
    char what[64];
    void *p;
    int rc = bind_device(g);
    snprintf(what, sizeof what, "no locked host memory for %llu bytes", (unsigned long long)bytes);
    if (!rc && !(rc = check_cuda(g, cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocDefault), what)))
        *out = p;
    return rc;
}

static void cuda_host_free(struct ntx_gpu *g, void *p)
{
    bind_device(g);
    check_cuda(g, cudaFreeHost(p), "giving locked host memory back");
}

static int cuda_host_register(struct ntx_gpu *g, void *p, uint64_t bytes)
{
    int rc = bind_device(g);
    return rc ? rc : check_cuda(g, cudaHostRegister(p, bytes, cudaHostRegisterMapped), "cannot register host memory");
}

static int cuda_host_address(struct ntx_gpu *g, void *p, void **dev)
{
    int rc = bind_device(g);
    return rc ? rc : check_cuda(g, cudaHostGetDevicePointer(dev, p, 0), "no address of host memory");
}

static void cuda_host_unregister(struct ntx_gpu *g, void *p)
{
    bind_device(g);
    check_cuda(g, cudaHostUnregister(p), "unlocking host memory");
}

/* ---- streams and events: they differ in the calls that create and destroy the native object */

#define OBJECT(name, arguments, make, destroy)                                                                         \
    static int cuda_##name##_new arguments                                                                             \
    {                                                                                                                  \
        struct ntx_gpu_##name *o = (struct ntx_gpu_##name *)calloc(1, sizeof *o);                                      \
        if (!o)                                                                                                        \
            return -ENOMEM;                                                                                            \
        o->g = g;                                                                                                      \
        int rc = bind_device(g);                                                                                       \
        if (!rc)                                                                                                       \
            rc = check_cuda(g, make, "cannot make a " #name);                                                          \
        if (rc)                                                                                                        \
            free(o);                                                                                                   \
        else                                                                                                           \
            *out = o;                                                                                                  \
        return rc;                                                                                                     \
    }                                                                                                                  \
    static void cuda_##name##_free(struct ntx_gpu_##name *o)                                                           \
    {                                                                                                                  \
        if (!o)                                                                                                        \
            return;                                                                                                    \
        bind_device(o->g);                                                                                             \
        check_cuda(o->g, destroy, "cannot end a " #name);                                                              \
        free(o);                                                                                                       \
    }
static cudaError_t end_stream(cudaStream_t s)
{
    cudaError_t e = cudaStreamSynchronize(s), late = cudaStreamDestroy(s);
    return e == cudaSuccess ? late : e;
}

OBJECT(stream, (struct ntx_gpu * g, struct ntx_gpu_stream **out),
       cudaStreamCreateWithFlags(&o->native, cudaStreamNonBlocking), end_stream(o->native))
OBJECT(event, (struct ntx_gpu * g, bool timed, struct ntx_gpu_event **out),
       cudaEventCreateWithFlags(&o->native, timed ? cudaEventDefault : cudaEventDisableTiming),
       cudaEventDestroy(o->native))

static int cuda_stream_sync(struct ntx_gpu_stream *s)
{
    return check_cuda(s->g, cudaStreamSynchronize(s->native), "the device");
}

static int cuda_event_record(struct ntx_gpu_event *e, struct ntx_gpu_stream *s)
{
    return check_cuda(e->g, cudaEventRecord(e->native, s->native), "cannot record an event");
}

static int cuda_event_query(struct ntx_gpu_event *e)
{
    cudaError_t r = cudaEventQuery(e->native);
    if (r == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    return r == cudaSuccess ? 1 : check_cuda(e->g, r, "the device");
}

static int cuda_event_sync(struct ntx_gpu_event *e)
{
    return check_cuda(e->g, cudaEventSynchronize(e->native), "the device");
}

static int cuda_event_ms(struct ntx_gpu_event *from, struct ntx_gpu_event *to, float *ms)
{
    return check_cuda(from->g, cudaEventElapsedTime(ms, from->native, to->native), "cannot measure the time");
}

static int cuda_stream_wait(struct ntx_gpu_stream *s, struct ntx_gpu_event *e)
{
    return check_cuda(s->g, cudaStreamWaitEvent(s->native, e->native, 0), "cannot wait for an event");
}

/* ---- work */

static int copy_async(struct ntx_gpu_stream *s, void *to, const void *from, uint64_t bytes, enum cudaMemcpyKind kind,
                      const char *what)
{
    return check_cuda(s->g, cudaMemcpyAsync(to, from, bytes, kind, s->native), what);
}

static int cuda_upload(struct ntx_gpu_stream *s, void *dev, const void *host, uint64_t bytes)
{
    return copy_async(s, dev, host, bytes, cudaMemcpyHostToDevice, "copy to the device");
}

static int cuda_upload_rows(struct ntx_gpu_stream *s, void *dev, uint64_t dev_stride, const void *host,
                            uint64_t host_stride, uint64_t width, uint32_t rows)
{
    return check_cuda(
        s->g, cudaMemcpy2DAsync(dev, dev_stride, host, host_stride, width, rows, cudaMemcpyHostToDevice, s->native),
        "copy to the device");
}

static int cuda_download(struct ntx_gpu_stream *s, void *host, const void *dev, uint64_t bytes)
{
    return copy_async(s, host, dev, bytes, cudaMemcpyDeviceToHost, "copy from the device");
}

static int cuda_fill(struct ntx_gpu_stream *s, void *dev, int byte, uint64_t bytes)
{
    return check_cuda(s->g, cudaMemsetAsync(dev, byte, bytes, s->native), "fill");
}

static int cuda_device_copy(struct ntx_gpu_stream *s, void *to, const void *from, uint64_t bytes)
{
    return copy_async(s, to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the device");
}

/* ---- graphs */

static int cuda_capture(struct ntx_gpu_stream *s)
{
    return check_cuda(s->g, cudaStreamBeginCapture(s->native, cudaStreamCaptureModeThreadLocal),
                      "cannot record a graph");
}

/* Updates *native to the recorded graph; makes a new one if its form differs. */
static cudaError_t update_graph(cudaGraphExec_t *native, cudaGraph_t graph)
{
    cudaGraphExecUpdateResultInfo info;
    if (*native && cudaGraphExecUpdate(*native, graph, &info) == cudaSuccess)
        return cudaSuccess;
    cudaGetLastError();
    if (*native)
        cudaGraphExecDestroy(*native);
    *native = NULL;
    return cudaGraphInstantiate(native, graph, 0);
}

static int cuda_captured(struct ntx_gpu_stream *s, struct ntx_gpu_graph **out)
{
    cudaGraph_t graph = NULL;
    struct ntx_gpu_graph *o = *out;
    int rc = check_cuda(s->g, cudaStreamEndCapture(s->native, &graph), "cannot record a graph");
    if (!rc && !o && !(o = (struct ntx_gpu_graph *)calloc(1, sizeof *o)))
        rc = -ENOMEM;
    if (!rc) {
        o->g = s->g;
        *out = o;
        rc = check_cuda(s->g, update_graph(&o->native, graph), "cannot make a graph");
    }
    if (graph)
        cudaGraphDestroy(graph);
    return rc;
}

static int cuda_graph_launch(struct ntx_gpu_stream *s, struct ntx_gpu_graph *g)
{
    return check_cuda(s->g, cudaGraphLaunch(g->native, s->native), "a graph");
}

static void cuda_graph_free(struct ntx_gpu_graph *g)
{
    if (!g)
        return;
    bind_device(g->g);
    if (g->native)
        check_cuda(g->g, cudaGraphExecDestroy(g->native), "cannot end a graph");
    free(g);
}

/* ---- cuBLAS */

/* Row-major z = x w^T is column-major z^T = w x^T. */
static int cuda_dense(struct ntx_gpu_stream *s, const uint16_t *w, const uint16_t *x, float *z, uint32_t n_out,
                      uint32_t n_in, uint32_t n_rows)
{
    struct ntx_gpu *g = s->g;
    const float one = 1, zero = 0;
    int rc = open_blas(g);
    if (rc)
        return rc;
    cublasStatus_t status = g->blas.set_stream(g->blas.handle, s->native);
    if (status == CUBLAS_STATUS_SUCCESS) /* set_stream resets the workspace */
        status = g->blas.set_workspace(g->blas.handle, g->blas.workspace, WORKSPACE);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = g->blas.gemm(g->blas.handle, CUBLAS_OP_T, CUBLAS_OP_N, (int)n_out, (int)n_rows, (int)n_in, &one, w,
                              CUDA_R_16F, (int)n_in, x, CUDA_R_16F, (int)n_in, &zero, z, CUDA_R_32F, (int)n_out,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    snprintf(g->error, sizeof g->error, "cuBLAS fails with status %d on %u x %u x %u", (int)status, n_rows, n_out,
             n_in);
    return -EIO;
}

static int cuda_launch(struct ntx_gpu_stream *s, enum ntx_gpu_kernel k, const void *args)
{
    int rc = ntx__launch(s, k, args);
    if (rc == -EINVAL)
        snprintf(s->g->error, sizeof s->g->error, "kernel %d cannot do this shape or type", (int)k);
    return rc;
}

extern "C" const struct ntx_gpu_ops *ntx_gpu_table(void)
{
    static const struct ntx_gpu_ops ops = {
        NTX_GPU_ABI,       "cuda",          cuda_open,          cuda_close,
        cuda_info,         cuda_error,      cuda_alloc,         cuda_free,
        cuda_host_alloc,   cuda_host_free,  cuda_host_register, cuda_host_unregister,
        cuda_host_address, cuda_stream_new, cuda_stream_free,   cuda_stream_sync,
        cuda_event_new,    cuda_event_free, cuda_event_record,  cuda_event_query,
        cuda_event_sync,   cuda_event_ms,   cuda_stream_wait,   cuda_upload,
        cuda_upload_rows,  cuda_download,   cuda_fill,          cuda_device_copy,
        cuda_launch,       cuda_capture,    cuda_captured,      cuda_graph_launch,
        cuda_graph_free,   cuda_dense,
    };
    return &ops;
}
