//! The files of the repository that the rules are about.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// A text file of the repository.
pub(crate) struct TextFile {
    /// The path from the root of the repository.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl TextFile {
    /// Returns a complaint that names the file and a line, counted from 1.
    pub(crate) fn complaint(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path.display())
    }

    /// Whether the file name ends in `.` and `extension`.
    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|actual| actual == extension)
    }

    /// Whether the file holds tests or benches only.
    pub(crate) fn is_test(&self) -> bool {
        let mut names = self.path.components().map(|part| part.as_os_str().to_string_lossy());
        names.any(|name| {
            let name = name.trim_end_matches(".rs");
            matches!(name, "tests" | "benches" | "testing" | "testdata")
        })
    }
}

/// All source, documentation and configuration files, sorted by path.
pub(crate) fn text_files() -> Vec<TextFile> {
    let mut files = Vec::new();
    let mut directories = vec![root().to_path_buf()];
    while let Some(directory) = directories.pop() {
        for file in fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
                    directories.push(path);
                }
            } else if is_text(&path) && name != "LICENSE" {
                let text = fs::read_to_string(&path).unwrap();
                files.push(TextFile { path: path.strip_prefix(root()).unwrap().into(), text });
            }
        }
    }
    assert!(!files.is_empty(), "found no files");
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The Rust files, sorted by path.
pub(crate) fn rust() -> Vec<TextFile> {
    text_files().into_iter().filter(|file| file.is("rs")).collect()
}

fn is_text(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
    match extension {
        Some(extension) => EXTENSIONS.contains(&extension.as_str()),
        // Scripts such as .ci/run.
        None => fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

const EXTENSIONS: [&str; 8] = ["rs", "md", "yaml", "yml", "toml", "sh", "py", "js"];

/// Build output, dependencies of the client tests, and bytes that fuzzing found.
const SKIPPED_DIRECTORIES: [&str; 5] = ["target", ".git", "node_modules", "corpus", ".venv"];
