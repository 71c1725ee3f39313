//! The files of the live page, which are part of the binary. They load nothing from elsewhere, and
//! get all data from `/api/…` (`docs/decisions/operators-views.md`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use crate::admin::api::Answer;

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFile {
    Html,
    Style,
    Script,
    Icon,
}

impl PageFile {
    /// Returns the file with a name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "page.css" => Self::Style,
            "page.js" => Self::Script,
            "icon.svg" => Self::Icon,
            _ => return None,
        })
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Style => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
            Self::Icon => "image/svg+xml",
        }
    }

    /// Returns the file. It is compressed once.
    pub(super) fn answer(self) -> &'static Answer {
        static HTML: LazyLock<Answer> = LazyLock::new(|| PageFile::Html.read());
        static STYLE: LazyLock<Answer> = LazyLock::new(|| PageFile::Style.read());
        static SCRIPT: LazyLock<Answer> = LazyLock::new(|| PageFile::Script.read());
        static ICON: LazyLock<Answer> = LazyLock::new(|| PageFile::Icon.read());
        match self {
            Self::Html => &HTML,
            Self::Style => &STYLE,
            Self::Script => &SCRIPT,
            Self::Icon => &ICON,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Html => include_str!("page/page.html"),
            Self::Style => include_str!("page/page.css"),
            Self::Script => include_str!("page/page.js"),
            Self::Icon => include_str!("page/icon.svg"),
        }
    }

    fn read(self) -> Answer {
        let mut hasher = DefaultHasher::new();
        self.text().hash(&mut hasher);
        Answer::from_file(self.text(), hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [PageFile; 4] = [PageFile::Html, PageFile::Style, PageFile::Script, PageFile::Icon];

    #[test]
    fn the_page_is_small() {
        let raw: usize = ALL.iter().map(|file| file.text().len()).sum();
        let compressed: usize = ALL.iter().map(|file| file.answer().gzip().unwrap().len()).sum();
        assert!(raw <= 64 << 10, "{raw} bytes");
        assert!(compressed <= 14 << 10, "{compressed} bytes compressed");
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for file in ALL {
            // The name of a namespace is no address of a file.
            let text = file.text().replace("http://www.w3.org/2000/svg", "");
            for word in ["http:", "https:", "//cdn", "@import", "url(", "eval(", "innerHTML"] {
                assert!(!text.contains(word), "{file:?}: {word}");
            }
            assert!(!text.contains("style=") && !text.contains("onclick"), "{file:?}");
        }
    }
}
