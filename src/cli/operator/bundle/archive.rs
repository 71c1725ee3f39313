//! A compressed tar archive of small files (POSIX ustar), readable by its owner alone.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Returns an archive of files.
pub(super) fn encode(modified: u64, files: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut archive = GzEncoder::new(Vec::new(), Compression::default());
    for (name, content) in files {
        archive.write_all(&header(name, content.len(), modified)?)?;
        archive.write_all(content)?;
        let rest = content.len() % BLOCK_BYTES;
        if rest > 0 {
            archive.write_all(&vec![0; BLOCK_BYTES - rest])?;
        }
    }
    archive.write_all(&[0; 2 * BLOCK_BYTES])?;
    archive.finish()
}

/// Writes an archive to a new file. Fails if there is one of this name already.
pub(super) fn write(path: &Path, archive: &[u8]) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(archive)?;
    file.sync_all()
}

/// Returns the header of a file.
fn header(name: &str, length: usize, modified: u64) -> io::Result<[u8; BLOCK_BYTES]> {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| {
        for (place, byte) in header.iter_mut().skip(at).zip(text) {
            *place = *byte;
        }
    };
    if name.len() > NAME_BYTES_MAX || length as u64 > LENGTH_MAX {
        return Err(io::Error::other(format!("{name} does not fit a tar archive")));
    }
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{length:011o}\0").as_bytes());
    put(136, format!("{modified:011o}\0").as_bytes());
    // The checksum counts itself as spaces.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    for (place, byte) in header.iter_mut().skip(148).zip(sum.as_bytes()) {
        *place = *byte;
    }
    Ok(header)
}

const BLOCK_BYTES: usize = 512;
/// The name's field, with a zero at its end.
const NAME_BYTES_MAX: usize = 99;
/// Eleven octal digits.
const LENGTH_MAX: u64 = 0o77_777_777_777;

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
        let mut bytes = Vec::new();
        GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), BLOCK_BYTES * (1 + 2 + 1 + 2));
        assert!(bytes.starts_with(b"weir/a.json\0"));
        assert_eq!(&bytes[124..136], b"00000001274\0", "700 in octal digits");
        assert_eq!(bytes[BLOCK_BYTES..][..700], [b'x'; 700]);
        assert!(bytes[3 * BLOCK_BYTES..].starts_with(b"weir/b\0"));
        let sum: u32 = bytes[..148].iter().chain(&bytes[156..512]).map(|it| u32::from(*it)).sum();
        assert_eq!(&bytes[148..156], format!("{:06o}\0 ", sum + 8 * 32).as_bytes());
        // It never replaces a file.
        assert!(write(&path, &archive).is_err());
        assert!(header(&"x".repeat(100), 1, 1).is_err());
    }
}
