//! Lists of objects. A list from the API server is parsed into objects; a list for a client is
//! joined from the stored bytes of objects ([`SplicedList`]).

mod encode;
mod envelope;
mod item_format;
mod page;
mod parse;
mod pieces;
mod reader;
mod spliced;

pub use self::encode::encode;
pub use self::item_format::ItemFormat;
pub use self::page::{ListError, ListMeta, ListPage, ListedObjects};
pub use self::parse::parse;
pub use self::pieces::Pieces;
pub use self::reader::ListReader;
pub use self::spliced::SplicedList;

#[cfg(test)]
pub(crate) mod tests;
