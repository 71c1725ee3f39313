//! A setting is stated once: in a struct that the macro `section` makes from one line for each
//! field, with its comment, name, type, default and `Kind`, and whether a running Weir takes it
//! over (`live`) or the next start does (`restart`).
//!
//! The file is read by it, the effective configuration printed, a reload compared, and the schema,
//! the reference and config/weir.yaml written (`schema`). A comment there is for
//! operators; the reason of a default stands above it with two slashes.

/// Makes a struct of settings: `/// comment`, then `live` or `restart`, `name: Type = default,
/// Kind;`. The name in the file is the same in camel case, or the text in brackets after it.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $change:ident $field:ident $([$key:literal])?: $type:ty = $default:expr, $kind:expr;
            )*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::config::kinds::Section for $name {
            fn fields() -> Vec<$crate::config::kinds::Field> {
                let default = Self::default();
                let fields = [$($crate::config::kinds::Field::new::<$type>(
                    $crate::config::section::key!($field $($key)?),
                    concat!($($doc, "\n"),+),
                    stringify!($change) == "live",
                    &$kind,
                    &default.$field,
                ),)*];
                fields.into_iter().flatten().collect()
            }

            fn read(
                &mut self,
                name: &str,
                node: &$crate::config::file::Node,
                reader: &mut $crate::config::reader::Reader<'_>,
            ) {
                $(if name == $crate::config::section::key!($field $($key)?) {
                    $crate::config::kinds::Kind::<$type>::read(
                        &$kind, &mut self.$field, node, reader,
                    );
                })*
            }

            fn write(&self) -> serde_json::Map<String, serde_json::Value> {
                let fields = [$((
                    $crate::config::section::key!($field $($key)?),
                    $crate::config::kinds::Kind::<$type>::write(&$kind, &self.$field),
                ),)*];
                fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
            }

            fn take_live(&mut self, new: &Self) {
                $($crate::config::kinds::Kind::<$type>::take_live(
                    &$kind, &mut self.$field, &new.$field, stringify!($change) == "live",
                );)*
            }
        }
    };
}

/// The name of a field in the file.
macro_rules! key {
    ($field:ident) => {
        $crate::config::section::camel_case(stringify!($field))
    };
    ($field:ident $key:literal) => {
        $key.to_owned()
    };
}

pub(super) use {key, section};

/// Turns `shutdown_delay` into `shutdownDelay`.
pub(super) fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        text.extend(letters);
    }
    text
}
