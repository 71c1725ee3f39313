//! A file with CA certificates that replaces the cluster's own. Changes are detected by content, as
//! for serving certificates.

use std::path::{Path, PathBuf};

use crate::auth::x509::{Bundle, BundleError};

/// A file and its last content.
#[derive(Debug)]
pub(super) struct CaFile {
    path: PathBuf,
    /// The content as last read, valid or not, so that an invalid file is reported once; `None` if
    /// the file could not be read.
    last_content: Option<Vec<u8>>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaFileError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(std::io::Error),
    /// The content is not a bundle of CA certificates.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl CaFile {
    /// Opens and parses a file.
    pub(super) fn open(path: &Path) -> Result<(Self, Bundle), CaFileError> {
        let content = read(path)?;
        let bundle = Bundle::parse(&content)?;
        Ok((Self { path: path.to_owned(), last_content: Some(content) }, bundle))
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again; `None` if the content is the same. The file is small and local, so
    /// this does not block for long.
    pub(super) fn poll(&mut self) -> Option<Result<Bundle, CaFileError>> {
        match read(&self.path) {
            Ok(content) if self.last_content.as_ref() == Some(&content) => None,
            Ok(content) => {
                let bundle = Bundle::parse(&content);
                self.last_content = Some(content);
                Some(bundle.map_err(CaFileError::from))
            }
            Err(error) => self.last_content.take().map(|_| Err(error)),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CaFileError> {
    std::fs::read(path).map_err(CaFileError::Read)
}
