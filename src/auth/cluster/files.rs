//! A CA in a file, in the stead of the cluster's own; looked at by content, as serving certificates are.

use std::path::{Path, PathBuf};

use crate::auth::x509::{Bundle, BundleError};

/// A file, and what was last seen in it.
#[derive(Debug)]
pub(super) struct CaFile {
    path: PathBuf,
    /// What was last looked at, good or bad, so that a bad file is told of once; `None` for one that could not be read.
    seen: Option<Vec<u8>>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaFileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(std::io::Error),
    /// What is in it cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl CaFile {
    /// Reads it for the first time.
    pub(super) fn open(path: &Path) -> Result<(Self, Bundle), CaFileError> {
        let content = read(path)?;
        let bundle = Bundle::parse(&content)?;
        Ok((Self { path: path.to_owned(), seen: Some(content) }, bundle))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at it again; `None` if nothing is new. It is small and local, so that reading it in place is short.
    pub(super) fn poll(&mut self) -> Option<Result<Bundle, CaFileError>> {
        match read(&self.path) {
            Ok(content) if self.seen.as_ref() == Some(&content) => None,
            Ok(content) => {
                let bundle = Bundle::parse(&content);
                self.seen = Some(content);
                Some(bundle.map_err(CaFileError::from))
            }
            Err(error) => self.seen.take().map(|_| Err(error)),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CaFileError> {
    std::fs::read(path).map_err(CaFileError::Read)
}
