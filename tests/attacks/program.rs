//! The attacks as one program. Nothing of the repository can be imported inside a sandbox, so the parts are joined to the text that a
//! run gets as its code.

/// Its parts, in this order: `base.py` has what all of them use, `run.py` reads the arguments.
pub(crate) const PROGRAM: &str = concat!(
    include_str!("program/base.py"),
    "\n\n",
    include_str!("program/network.py"),
    "\n\n",
    include_str!("program/processes.py"),
    "\n\n",
    include_str!("program/privileges.py"),
    "\n\n",
    include_str!("program/kernel.py"),
    "\n\n",
    include_str!("program/files.py"),
    "\n\n",
    include_str!("program/resources.py"),
    "\n\n",
    include_str!("program/run.py"),
);
