//! The launcher of MPI: `mpirun`, or what `ITG_MPIRUN` names.

use std::path::Path;
use std::process::{Command, Stdio};

/// A launcher of so many ranks of our program, with a directory for its session that no other launcher uses: those of
/// Open MPI make and remove one of the same name in /tmp, and fail when two do so at the same time.
pub(crate) fn mpirun(ranks: u32, session: &Path) -> Command {
    let launcher = std::env::var_os("ITG_MPIRUN").unwrap_or_else(|| "mpirun".into());
    let mut command = Command::new(launcher);
    command.env("TMPDIR", session);
    // What Open MPI wants to hear from root, and on few processors; others do not know these variables.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_itg-cluster")]);
    command.stdin(Stdio::null());
    command
}
