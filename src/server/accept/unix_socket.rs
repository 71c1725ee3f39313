//! Unix sockets: binding them safely, and which processes may connect.
//!
//! Only root and Weir's own user may connect. A stale socket file of an earlier Weir is replaced, a
//! socket in use and any other file are not.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::server::accept::bind_error::BindError;

pub(crate) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    check_directory(path)?;
    let address = path.display().to_string();
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        // Only a refused connection proves that no process listens any more.
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            _ => return Err(BindError::InUse(address)),
        }
        std::fs::remove_file(path).map_err(|source| BindError::listen(address.clone(), source))?;
    }
    let bind = || {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let inode = std::fs::symlink_metadata(path)?.ino();
        Ok((listener, SocketFile { path: path.to_owned(), inode }))
    };
    bind().map_err(|source| BindError::listen(address, source))
}

/// Whether the process at the other end runs as root or as Weir's own user. The mode of the socket
/// ensures the same, but only from shortly after it was bound, and only on file systems that have
/// modes.
pub(crate) fn is_trusted(stream: &UnixStream) -> bool {
    let euid = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| trusts(euid, peer.uid()))
}

fn trusts(euid: u32, peer: u32) -> bool {
    peer == 0 || peer == euid
}

/// Refuses a directory in which every user may replace the socket, and warns of one whose owner is
/// another user, who may.
fn check_directory(path: &Path) -> Result<(), BindError> {
    let Some(Ok(directory)) = path.parent().map(std::fs::metadata) else {
        // Binding reports what is wrong with the directory.
        return Ok(());
    };
    if directory.mode() & WORLD_WRITABLE != 0 && directory.mode() & STICKY == 0 {
        return Err(BindError::OpenDirectory(path.to_owned()));
    }
    let euid = rustix::process::geteuid().as_raw();
    if !trusts(euid, directory.uid()) {
        let (path, owner) = (path.display(), directory.uid());
        tracing::warn!(%path, owner, "the Unix socket's directory belongs to another user, who may replace the socket");
    }
    Ok(())
}

/// The file of a bound socket. Dropping it removes the file, if it is still the same one.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| metadata.ino() == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove the socket's file");
        }
    }
}

/// `S_IWOTH` and `S_ISVTX` of POSIX.
const WORLD_WRITABLE: u32 = 0o002;
const STICKY: u32 = 0o1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        match bind(path) {
            Ok(_) => panic!("bound {}", path.display()),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weir.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std does not remove the file");

        let first = bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(error(&path).contains("in use by another process"));
        drop(first);
        assert!(!path.exists(), "the file is removed with its listener");

        std::fs::write(&path, "precious").unwrap();
        assert!(error(&path).contains("not a socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[tokio::test]
    async fn a_world_writable_directory_is_refused_unless_sticky() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weir.sock");
        let mode = |mode| {
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode))
        };
        mode(0o777).unwrap();
        assert!(error(&path).contains("everybody may write to its directory"));
        mode(0o1777).unwrap();
        assert!(bind(&path).is_ok());
    }

    #[tokio::test]
    async fn only_root_and_the_own_user_may_connect() {
        assert!(trusts(1000, 1000) && trusts(1000, 0) && trusts(0, 0));
        assert!(!trusts(1000, 1001) && !trusts(0, 1000));
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(is_trusted(&one));
    }
}
