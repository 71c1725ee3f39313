//! The files of the live page, which are part of the binary. They load nothing from elsewhere, and
//! get all data from `/api/…` (`docs/decisions/operators-views.md`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use crate::admin::api::Answer;

/// The page itself.
pub(super) static HTML: PageFile =
    PageFile::new("page.html", "text/html; charset=utf-8", include_str!("page/page.html"));

/// The files that the page loads.
static FILES: [PageFile; 3] = [
    PageFile::new("page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    PageFile::new("page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    PageFile::new("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// Returns the file with a name that the page loads.
pub(super) fn find(name: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.name == name)
}

/// A file of the page.
#[derive(Debug)]
pub(super) struct PageFile {
    name: &'static str,
    pub(super) content_type: &'static str,
    text: &'static str,
    answer: OnceLock<Answer>,
}

impl PageFile {
    const fn new(name: &'static str, content_type: &'static str, text: &'static str) -> Self {
        Self { name, content_type, text, answer: OnceLock::new() }
    }

    /// Returns the file. It is compressed once.
    pub(super) fn answer(&self) -> &Answer {
        self.answer.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            self.text.hash(&mut hasher);
            Answer::from_file(self.text, hasher.finish())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static PageFile> {
        FILES.iter().chain([&HTML])
    }

    #[test]
    fn the_page_is_small() {
        let raw: usize = all().map(|file| file.text.len()).sum();
        let compressed: usize = all().map(|file| file.answer().gzip().unwrap().len()).sum();
        assert!(raw <= 64 << 10, "{raw} bytes");
        assert!(compressed <= 14 << 10, "{compressed} bytes compressed");
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for file in all() {
            // The name of a namespace is no address of a file.
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "//cdn", "@import", "url(", "eval(", "innerHTML"] {
                assert!(!text.contains(word), "{}: {word}", file.name);
            }
            assert!(!text.contains("style=") && !text.contains("onclick"), "{}", file.name);
        }
    }
}
