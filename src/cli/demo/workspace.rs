//! The directory of the demo's files. A new directory is removed at the end. A given directory
//! stays, without the demo's files, which name servers that no longer exist.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::app::kubeconfig;

/// The directory, with the files to remove at the end.
#[derive(Debug)]
pub(super) struct Workspace {
    path: PathBuf,
    temporary: bool,
    files: Vec<PathBuf>,
}

impl Workspace {
    /// Creates the directory, with mode 0700 if it is new.
    pub(super) fn new(given: Option<&Path>) -> anyhow::Result<Self> {
        let (path, temporary) = match given {
            Some(path) => (path.to_path_buf(), false),
            None => {
                let name = format!("weir-demo-{}-{:08x}", std::process::id(), fastrand::u32(..));
                (std::env::temp_dir().join(name), true)
            }
        };
        // One that is there already is refused where it should be new: somebody may have put it
        // there for us.
        DirBuilder::new()
            .mode(0o700)
            .recursive(!temporary)
            .create(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        let path = path.canonicalize().unwrap_or(path);
        Ok(Self { path, temporary, files: Vec::new() })
    }

    /// Returns the path of a file in it, which is removed at the end.
    pub(super) fn file(&mut self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        self.files.push(path.clone());
        path
    }

    /// Writes a file in it, mode 0600.
    pub(super) fn write(&mut self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.file(name);
        kubeconfig::write(&path, text)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        for file in &self.files {
            // One that was announced may not have been written.
            drop(fs::remove_file(file));
        }
        if self.temporary
            && let Err(error) = fs::remove_dir(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the demo's directory is left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_workspace_is_deleted_and_a_given_one_is_kept() {
        let mut workspace = Workspace::new(None).unwrap();
        let file = workspace.write("kubeconfig", "x").unwrap();
        assert!(file.exists());
        drop(workspace);
        assert!(!file.parent().unwrap().exists());

        let parent = tempfile::tempdir().unwrap();
        let given = parent.path().join("a/b");
        let mut workspace = Workspace::new(Some(&given)).unwrap();
        let file = workspace.write("kubeconfig", "x").unwrap();
        fs::write(given.join("other"), "y").unwrap();
        drop(workspace);
        assert!(given.join("other").exists() && !file.exists());
    }
}
