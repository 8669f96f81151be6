//! Signal handling: signals must reach the program's own threads.

use std::mem::MaybeUninit;
use std::ptr;

/// Guard that restores the thread's signal mask when dropped.
struct SignalMaskGuard(libc::sigset_t);

impl Drop for SignalMaskGuard {
    fn drop(&mut self) {
        // SAFETY: `pthread_sigmask` filled the set, which is only read here. Nothing is written through the null pointer.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Runs a function with all signals blocked on this thread. Threads that it starts have them blocked permanently.
pub(crate) fn with_signals_blocked<T>(operation: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both pointers point to memory for a set. `sigfillset` fills the first; `pthread_sigmask` reads it and fills the
    // second. Neither fails with these arguments (POSIX), and `before` is used only if it was filled.
    let was_blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    // SAFETY: filled by the call above.
    let _restored = was_blocked.then(|| SignalMaskGuard(unsafe { before.assume_init() }));
    operation()
}
