//! The files that this process executes, and where they are in its memory. With them, whoever has
//! a file's symbols can name the addresses of a profile.

/// A part of a file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    /// The first address after it.
    pub(super) end: u64,
    pub(super) file_offset: u64,
    pub(super) file: String,
}

/// Returns the parts that can be executed, from the text of `/proc/self/maps`.
pub(super) fn executable(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).collect()
}

/// Parses `start-end permissions offset device inode path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_executable = fields.next()?.contains('x');
    let offset = fields.next()?;
    let file = fields.nth(2)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        start: number(start)?,
        end: number(end)?,
        file_offset: number(offset)?,
        file: file.to_owned(),
    };
    is_executable.then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executed_files_are_found() {
        let maps = "\
55d0c0000000-55d0c0100000 r--p 00000000 fe:00 1234                       /usr/bin/weir
55d0c0100000-55d0c0300000 r-xp 00100000 fe:00 1234                       /usr/bin/weir
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
not a line
";
        let mapping = |start, end, file_offset, file: &str| Mapping {
            start,
            end,
            file_offset,
            file: file.to_owned(),
        };
        assert_eq!(
            executable(maps),
            [
                mapping(0x55d0_c010_0000, 0x55d0_c030_0000, 0x10_0000, "/usr/bin/weir"),
                mapping(0x7ffd_0000_0000, 0x7ffd_0000_2000, 0, "[vdso]"),
            ]
        );
    }
}
