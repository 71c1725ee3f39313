//! Parses lists as a whole.

use bytes::Bytes;
use prost::Message;

use super::page::{ListError, ListPage, ListedObjects};
use super::reader::ListReader;
use crate::ingest::{self, IngestError};
use crate::protobuf;
use crate::protobuf::wire::Fields;
use weir_api::media_type::Encoding;
use weir_api::resource::{ApiResource, Representation};
use weir_api::resource_version::ResourceVersion;

/// Parses the whole body of a list. The order of its keys or fields does not matter. An unknown key
/// or field is an error, since Weir would lose it.
pub fn parse(
    body: &Bytes,
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    match representation.encoding() {
        Encoding::Json => parse_json(body, resource, representation),
        Encoding::Protobuf => parse_protobuf(body, resource, representation),
    }
}

pub(super) fn parse_json(
    body: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    let (mut reader, mut listed) = (ListReader::new(usize::MAX), ListedObjects::default());
    let read = reader.push(body, resource, representation, |object| listed.push(object));
    let page = read.and_then(|()| reader.finish()).map_err(|error| match error {
        ListError::Ingest(error) => error,
        ListError::TooLong(_) => IngestError::Malformed,
    })?;
    let ListedObjects { objects, unreadable } = listed;
    Ok(ListPage { objects, unreadable, ..page })
}

fn parse_protobuf(
    body: &Bytes,
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    let (_, raw) = protobuf::decode_envelope(body).ok_or(IngestError::Malformed)?;
    let mut meta = None;
    let mut listed = ListedObjects::default();
    for field in Fields::new(&raw) {
        let field = field?;
        match field.number {
            LIST_META if meta.is_none() => {
                let read = protobuf::ListMeta::decode(field.bytes()?);
                meta = Some(read.map_err(|_| IngestError::Malformed)?);
            }
            ITEMS => {
                listed.push(ingest::any_list_item(field.bytes()?, resource, representation)?);
            }
            _ => return Err(IngestError::Malformed),
        }
    }
    let meta = meta.unwrap_or_default();
    let resource_version = ResourceVersion::parse(&meta.resource_version.unwrap_or_default())
        .ok_or(IngestError::ResourceVersion)?;
    let continue_token = meta.continue_token.unwrap_or_default();
    let remaining_item_count =
        meta.remaining_item_count.and_then(|count| u64::try_from(count).ok());
    let ListedObjects { objects, unreadable } = listed;
    Ok(ListPage { resource_version, continue_token, remaining_item_count, objects, unreadable })
}

/// The fields of every list that Weir requests.
const LIST_META: u32 = 1;
const ITEMS: u32 = 2;
