/* Put into a process by LD_PRELOAD: kills it at a counted point, fills its disk, takes it off the network, moves its
 * clock. Compiled by the tests (see mod.rs), which hold the other end of the page below.
 *
 * Points are found by a seccomp filter that turns the system calls concerned into SIGSYS (seccomp(2),
 * SECCOMP_RET_TRAP), so that calls made around the C library are seen too. The handler makes the call itself, with a
 * mark that the filter lets pass. Only clock_gettime and connect are taken at the library: the first never becomes a
 * system call, and both are made by nobody directly. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the crash tests know the registers of x86-64 only: add those of this machine to on_call"
#endif

/* Shared with the test; the order is that of `Field` in mod.rs. */
struct page {
    volatile int64_t clock_us; /* added to the real-time clock */
    volatile uint64_t points;  /* counted so far */
    volatile uint64_t at;      /* the point at which to die; 0: none */
    volatile uint64_t after;   /* 0: before its call, 1: after it */
    volatile uint64_t full;    /* whether the disk is full */
    volatile uint64_t offline; /* whether every connection is refused */
};

enum role { BYSTANDER, DATABASE, FILES };

static struct page nothing;
static struct page *page = &nothing;
static enum role role = BYSTANDER;
static const char *folder = ""; /* what is written below it counts */
static volatile int commit_written; /* DATABASE: a commit is in the log, not yet on the disk */

#define PASS 0x62756c6c61 /* in the sixth argument, which none of the calls has */

static long call(long number, const long *a) {
    long result;
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = PASS;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Counts a point; whether the process is to die after the call. */
static int point(void) {
    uint64_t count = __atomic_add_fetch(&page->points, 1, __ATOMIC_SEQ_CST);
    if (count != page->at)
        return 0;
    if (!page->after)
        die();
    return 1;
}

/* Whether an open file is below the folder and ends as given. */
static int below(int fd, const char *end) {
    char link[32] = "/proc/self/fd/", path[4096];
    int digits = 0;
    char text[12];
    do
        text[digits++] = '0' + fd % 10;
    while ((fd /= 10) > 0 && digits < 11);
    for (int i = 0; i < digits; i++)
        link[14 + i] = text[digits - 1 - i];
    link[14 + digits] = 0;
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    size_t tail = strlen(end);
    return *folder && !strncmp(path, folder, strlen(folder)) && (size_t)length >= tail &&
           !strcmp(path + length - tail, end);
}

static int is_write(long number) {
    return number == SYS_write || number == SYS_writev || number == SYS_pwrite64 || number == SYS_pwritev;
}

static int is_sync(long number) { return number == SYS_fsync || number == SYS_fdatasync; }

/* A frame's header in SQLite's write-ahead log has 24 octets; octets 4 to 8 are not zero in the frame that commits
 * (sqlite.org/fileformat2.html#the_write_ahead_log). */
static int is_commit(long number, const long *a) {
    const unsigned char *header = (const unsigned char *)a[1];
    if ((number != SYS_pwrite64 && number != SYS_write) || a[2] != 24)
        return 0;
    return (header[4] | header[5] | header[6] | header[7]) && below(a[0], "-wal");
}

/* Points of the database: before, a commit is not in the log; after, it is on the disk and nobody has been told. */
static long database_call(long number, const long *a) {
    if (is_commit(number, a))
        commit_written |= point();
    long result = call(number, a);
    if (commit_written && is_sync(number) && below(a[0], "-wal"))
        die();
    return result;
}

/* Points of files: every call that changes what is on the disk. */
static long files_call(long number, const long *a) {
    int counts = 1;
    if (is_write(number) || is_sync(number) || number == SYS_ftruncate)
        counts = below(a[0], "");
    else if (number == SYS_open || number == SYS_openat) {
        const char *path = (const char *)a[number == SYS_open ? 0 : 1];
        counts = path[0] != '/' || !strncmp(path, folder, strlen(folder));
    }
    int last = counts && point();
    long result = call(number, a);
    if (last)
        die();
    return result;
}

static int needs_room(long number) {
    return is_write(number) || number == SYS_fallocate || number == SYS_ftruncate;
}

static long answer(long number, const long *a) {
    /* Truncating gives room back; making longer takes it. Only the latter is refused, and nobody here does it. */
    if (page->full && needs_room(number) && number != SYS_ftruncate && below(a[0], ""))
        return -ENOSPC;
    if (role == DATABASE)
        return database_call(number, a);
    if (role == FILES)
        return files_call(number, a);
    return call(number, a);
}

static void on_call(int signal, siginfo_t *info, void *context) {
    (void)signal;
    int before = errno;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    long a[5] = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8]};
    r[REG_RAX] = answer(info->si_syscall, a);
    errno = before;
}

#define TRAP(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
/* Opening counts where it may make a file: `flags` is the argument of that number. */
#define TRAP_CREATING(number, flags)                                                       \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),                                     \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[flags])),    \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1),                               \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void watch_calls(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)PASS, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        TRAP(SYS_write), TRAP(SYS_writev), TRAP(SYS_pwrite64), TRAP(SYS_pwritev), TRAP(SYS_fsync),
        TRAP(SYS_fdatasync), TRAP(SYS_ftruncate), TRAP(SYS_fallocate), TRAP(SYS_rename), TRAP(SYS_renameat),
        TRAP(SYS_renameat2), TRAP(SYS_unlink), TRAP(SYS_unlinkat), TRAP(SYS_mkdir), TRAP(SYS_mkdirat),
        TRAP_CREATING(SYS_openat, 2), TRAP_CREATING(SYS_open, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        static const char why[] = "the crash tests need seccomp filters (seccomp(2))\n";
        ssize_t ignored = write(2, why, sizeof why - 1);
        _exit(ignored < 0 ? 98 : 99);
    }
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CRASHES_PAGE"), *wanted = getenv("CRASHES_ROLE"), *below_it = getenv("CRASHES_FOLDER");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *mapped = mmap(0, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED)
            page = mapped;
        close(fd);
    }
    if (below_it)
        folder = strdup(below_it);
    if (wanted)
        role = !strcmp(wanted, "database") ? DATABASE : FILES;
    /* Programs that it starts are bystanders, but they inherit the filter and need the handler. */
    unsetenv("CRASHES_ROLE");
    if (role == BYSTANDER && prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
        return;
    /* On the thread's own stack: the alternative one that Rust gives its threads is too small for this. */
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    sigaction(SIGSYS, &action, 0);
    if (role != BYSTANDER)
        watch_calls();
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += page->clock_us / 1000000;
    return result;
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real)
        real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    if (page->offline) {
        errno = ECONNREFUSED;
        return -1;
    }
    return real(fd, address, length);
}
