//! A file system of its own for a folder, of any size: what is full can be made larger. Mounting needs root, by `sudo` for others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

pub(crate) struct Room {
    folder: PathBuf,
}

impl Room {
    /// At `folder`, of a size such as `512k`.
    pub(crate) fn of(size: &str, folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("the temporary folder is writable");
        run(root("mount").args(["-t", "tmpfs", "-o", &format!("size={size},mode=777"), "tmpfs"]).arg(folder));
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn resize(&self, size: &str) {
        run(root("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.folder));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Files may be open still: the mount goes with the last of them.
        run(root("umount").arg("--lazy").arg(&self.folder));
    }
}

fn root(program: &str) -> Command {
    if geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["--non-interactive", program]);
    command
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("mount and umount are installed");
    assert!(output.status.success(), "{command:?} fails: {}", String::from_utf8_lossy(&output.stderr));
}
