//! The watchdog: a small process of its own that ends the command's process group when the lease does.
//!
//! Three processes are at work. *L* is `lease run`, which holds the lease and renews it. *W* is the watchdog, the same program started
//! once more in a process group of its own, so that whatever kills L's group leaves it alone. *C* is the command, started by W as
//! the leader of a third group, which everything that it starts belongs to. L and W talk over a socket pair: each renewal's deadline
//! goes to W as an absolute time of the clock that counts suspended time, and W says that it heard it. W sends SIGTERM at the stop
//! point (the deadline less the grace) and SIGKILL at the deadline, whether or not it has heard from L.
//!
//! # Who may die or freeze, and what then happens
//!
//! | what happens | what follows |
//! |---|---|
//! | L dies | the kernel closes the socket: W ends the group at once, SIGKILL after the grace and by the deadline at the latest |
//! | L freezes | no deadline comes: W ends the group at the stop point, SIGKILL at the deadline. L, once thawed, hears of it and exits 76 |
//! | L cannot renew | the same, and L says so as well |
//! | W dies | the socket closes: L ends the group. On Linux the kernel has killed C with W (`PR_SET_PDEATHSIG`) |
//! | the lease is lost while W is frozen | L kills the group itself, at once |
//! | W freezes | it does not confirm a new deadline: at the stop point of the last one that it confirmed L kills W, and goes on as above |
//! | C dies or exits | W ends what it left in its group, then L releases the lease |
//! | C freezes | it is a slow command: L renews. When its time comes it gets SIGTERM and SIGCONT, then SIGKILL |
//! | C dies, then L | W ends what is left, by the deadline at the latest |
//! | C dies, then W | L ends what is left |
//! | L dies, then W | on Linux the kernel kills C; what C had started is not ended |
//! | W dies, then L | the same, unless L was done; it takes at most the grace |
//! | L and W die at once | the same; `killall lease` does not do it, for W and C go by other names |
//! | L and W freeze at once | nothing can end C: freezing a whole control group or machine freezes C as well |
//! | L dies while W is frozen, or W dies while L is | W, or L, ends the group as soon as it thaws, which may be past the deadline; a C whose W has died is dead on Linux |
//! | L dies before C starts | W hears nothing, or the socket close, and ends; the lease expires |
//! | W dies before C starts | L releases the lease. C does not become the command before L knows its group |
//! | L freezes before C starts | W starts nothing once the stop point has passed |
//!
//! L releases the lease only when nothing of the group runs any more. Not covered is what leaves the group, as daemons do; what runs as
//! another user, whom W may not signal, is waited for and reported. On other systems than Linux W cannot reap the orphans of the
//! group, and C does not die with W.

mod chain;
mod group;
mod handle;
mod reaper;
mod server;
mod voice;

use std::{env, io, path::PathBuf};

pub(crate) use chain::{Due, StopChain};
pub(crate) use group::{Group, Vigil};
pub(crate) use handle::Watchdog;
pub(crate) use server::watch;

/// The path of this very program, also when its file was replaced or deleted since it was started.
#[cfg(target_os = "linux")]
fn program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { env::current_exe() }
}

/// The path that this program was started from.
#[cfg(not(target_os = "linux"))]
fn program() -> io::Result<PathBuf> {
    env::current_exe()
}
