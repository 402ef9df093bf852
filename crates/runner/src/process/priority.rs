//! Time for the runner on a CPU that its run wants for itself.

/// Puts the caller, not its children, ahead of every ordinary process, where it may (root with CAP_SYS_NICE); else its
/// place stays.
///
/// With 300 heads, each in a session of its own and thereby (autogroup) with the same share as every other session, a
/// runner of normal priority gets a few milliseconds a second: it met its deadline 15 s late (measured). It sleeps
/// except for work that its limits bound: output up to a cap, checks of the tree for a tenth of the time, the kill.
#[expect(unsafe_code, reason = "neither std nor rustix has sched_setscheduler")]
pub(crate) fn go_ahead() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is valid for the call, which reads one sched_param.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const lowest) };
}
