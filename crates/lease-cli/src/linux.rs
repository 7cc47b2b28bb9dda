//! What only Linux offers; elsewhere these do nothing.

/// Has the kernel kill this process with SIGKILL when its parent dies.
#[cfg_attr(not(target_os = "linux"), expect(clippy::unnecessary_wraps, reason = "it can fail on Linux"))]
pub(crate) fn die_with_parent() -> nix::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    Ok(())
}

/// Makes this process the parent of its descendants' orphans, so that it can reap them. A kernel that refuses leaves them to init.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Gives this process the name `watchdog`, so that `killall lease` and `pkill lease` do not take it along.
pub(crate) fn go_by_the_name_watchdog() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"watchdog");
}
