// Runs a program whose clocks a test can set, also one that asks the kernel by itself, as Go's do.
//
// usage: warp FILE PROGRAM [ARGUMENT...]
//
// FILE begins with two int64: by how many µs CLOCK_REALTIME and CLOCK_BOOTTIME are ahead. They may change at
// any time. CLOCK_MONOTONIC stays as it is, so that both ahead by as much are a machine that was suspended. The
// program is traced: it gets no vDSO, so that each clock_gettime is a system call, and the answers are changed.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/ptrace.h>

enum { THREADS = 4096, SYSCALL_STOP = SIGTRAP | 0x80 };

// What each thread has asked for; the slot is free if addr is 0.
static struct { pid_t thread; uint64_t clock, addr; } asked[THREADS];

static void fail(const char *what) {
  perror(what);
  exit(125);
}

static void info_of(pid_t thread, struct ptrace_syscall_info *info) {
  if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof *info, info) < 0 && errno != ESRCH) fail("warp: syscall info");
}

// without_vdso makes the program that was just executed see no vDSO.
static void without_vdso(pid_t pid) {
  struct ptrace_syscall_info info = {0};
  info_of(pid, &info);
  uint64_t at = info.stack_pointer;
  at += 8 * (1 + ptrace(PTRACE_PEEKDATA, pid, (void *)at, 0) + 1); // The number of arguments, and they.
  while (ptrace(PTRACE_PEEKDATA, pid, (void *)at, 0) != 0) at += 8; // The environment.
  for (at += 8;; at += 16) {
    long type = ptrace(PTRACE_PEEKDATA, pid, (void *)at, 0);
    if (type == AT_NULL) return;
    if (type == AT_SYSINFO_EHDR && ptrace(PTRACE_POKEDATA, pid, (void *)at, (void *)AT_IGNORE) < 0) fail("warp: vdso");
  }
}

// ask notes what a thread is about to ask the kernel.
static void ask(pid_t thread) {
  struct ptrace_syscall_info info = {0};
  info_of(thread, &info);
  for (int i = 0; i < THREADS; i++) {
    if (asked[i].addr && asked[i].thread != thread) continue;
    asked[i].thread = thread, asked[i].clock = info.seccomp.args[0], asked[i].addr = info.seccomp.args[1];
    return;
  }
}

// answer changes what the kernel has answered.
static void answer(pid_t thread, const volatile int64_t *shift) {
  for (int i = 0; i < THREADS; i++) {
    if (!asked[i].addr || asked[i].thread != thread) continue;
    struct timespec ts;
    struct iovec here = {&ts, sizeof ts}, there = {(void *)asked[i].addr, sizeof ts};
    int64_t by = 0;
    if (asked[i].clock == CLOCK_REALTIME || asked[i].clock == CLOCK_REALTIME_COARSE) by = shift[0];
    if (asked[i].clock == CLOCK_BOOTTIME) by = shift[1];
    asked[i].addr = 0;
    if (by == 0 || process_vm_readv(thread, &here, 1, &there, 1, 0) != sizeof ts) return;
    int64_t us = ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000 + by;
    ts.tv_nsec = us % 1000000 * 1000 + ts.tv_nsec % 1000, ts.tv_sec = us / 1000000;
    process_vm_writev(thread, &here, 1, &there, 1, 0);
    return;
  }
}

static void become(char **argv) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0) fail("warp: trace");
  raise(SIGSTOP);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0) fail("warp: filter");
  execv(argv[0], argv);
  fail("warp: exec");
}

int main(int argc, char **argv) {
  if (argc < 3) return 125;
  int file = open(argv[1], O_RDONLY);
  const volatile int64_t *shift = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || shift == MAP_FAILED) fail("warp: file");
  pid_t program = fork();
  if (program == 0) become(argv + 2);
  int status;
  if (waitpid(program, &status, 0) < 0) fail("warp: wait");
  long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                 PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, program, 0, (void *)options) < 0) fail("warp: options");
  ptrace(PTRACE_CONT, program, 0, 0);
  pid_t thread;
  while ((thread = waitpid(-1, &status, __WALL)) > 0) {
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread == program) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    int event = status >> 16, signal = WSTOPSIG(status), how = PTRACE_CONT;
    if (event == PTRACE_EVENT_SECCOMP) {
      ask(thread);
      how = PTRACE_SYSCALL;
    } else if (event == PTRACE_EVENT_EXEC) {
      without_vdso(thread);
    } else if (signal == SYSCALL_STOP) {
      answer(thread, shift);
    }
    // Of signals those of the program are passed on; the first stop of a thread is no signal of its own.
    long passed = event || signal == SYSCALL_STOP || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal;
    ptrace(how, thread, 0, (void *)passed);
  }
  return 125;
}
