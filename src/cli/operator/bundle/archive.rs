//! A compressed tar archive of small files (POSIX ustar), readable by its owner alone.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Returns an archive of files.
pub(super) fn encode(modified: u64, files: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mtime(modified);
        header.set_mode(0o600);
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    archive.into_inner()?.finish()
}

/// Writes an archive to a new file. Fails if there is one of this name already.
pub(super) fn write(path: &Path, archive: &[u8]) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(archive)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn an_archive_holds_its_files_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let files = [("weir/a.json".to_owned(), vec![b'x'; 700]), ("weir/b".to_owned(), vec![])];
        let archive = encode(1_000, &files).unwrap();
        write(&path, &archive).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let unpacked = GzDecoder::new(std::fs::File::open(&path).unwrap());
        let read = |entry: io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mode().unwrap(), header.mtime().unwrap()), (0o600, 1_000));
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name, content)
        };
        let entries: Vec<_> = tar::Archive::new(unpacked).entries().unwrap().map(read).collect();
        assert_eq!(entries, files);
        // It never replaces a file.
        assert!(write(&path, &archive).is_err());
    }
}
