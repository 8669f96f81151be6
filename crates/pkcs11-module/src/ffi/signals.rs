//! Signals, which are the program's and not ours.

use std::mem::MaybeUninit;
use std::ptr;

/// Puts the mask of the thread back that it had.
struct Restored(libc::sigset_t);

impl Drop for Restored {
    fn drop(&mut self) {
        // SAFETY: the set is one that `pthread_sigmask` filled; it is read only, and nothing is written for a null.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Does it with all signals blocked on this thread; threads that it starts have them blocked for good.
pub(crate) fn while_blocked<T>(does: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both point to room for a set. `sigfillset` fills the first, `pthread_sigmask` reads it and fills the second;
    // neither fails with these arguments (POSIX), and `before` is used only if it was filled.
    let was_blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    // SAFETY: filled, as it was just said.
    let _restored = was_blocked.then(|| Restored(unsafe { before.assume_init() }));
    does()
}
