//! Lists that are fetched page by page.

use crate::api::resource_version::ResourceVersion;
use crate::cache::probe::RESPONSE_TIMEOUT;
use crate::cache::reflector::accumulator::ListAccumulator;
use crate::cache::reflector::driver::Driver;
use crate::cache::reflector::failure::Failure;
use crate::cache::reflector::state::{State, Verify};
use crate::codec::ingest::Ingested;
use crate::codec::list::ListPage;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::ListRequest;

impl Driver {
    /// Lists page by page and commits the state.
    pub(super) async fn paged_list(
        &mut self,
        not_older: Option<ResourceVersion>,
    ) -> Result<State, Failure> {
        let cached = self.cached.clone();
        let mut first = ListRequest::not_older(not_older);
        first.limit = Some(cached.context.seams.page_size);
        let mut accumulator = ListAccumulator::new(&cached);
        let mut pages = 0;
        let walk = self.pages(first.clone(), &mut pages, |object| accumulator.push(object));
        let listed = match walk.await {
            // The resourceVersion of the first page was compacted before the last page was fetched.
            // A list without pages cannot expire.
            Err(Failure::Expired) if pages > 0 => {
                tracing::info!("the list expired between its pages; listing all at once");
                accumulator.clear();
                first.limit = None;
                self.pages(first, &mut pages, |object| accumulator.push(object)).await
            }
            other => other,
        };
        let resource_version = listed?;
        self.commit(accumulator.take(), resource_version).await?;
        Ok(self.resume_after_list())
    }

    /// Returns the state after a list without a watch. After a change of definition the bytes are
    /// verified.
    pub(super) fn resume_after_list(&self) -> State {
        let are_due = self.byte_checks.are_due();
        State::Resuming(if are_due { Verify::Bytes } else { Verify::Cluster })
    }

    /// Fetches all pages that begin with `first`, and counts them in `pages`. Returns the
    /// resourceVersion that they share.
    pub(super) async fn pages(
        &self,
        first: ListRequest,
        pages: &mut usize,
        mut take: impl FnMut(Ingested) -> Result<(), Failure>,
    ) -> Result<ResourceVersion, Failure> {
        *pages = 0;
        let limit = first.limit;
        let mut page = self.page(first).await?;
        let resource_version = page.resource_version;
        loop {
            *pages += 1;
            let continue_token = std::mem::take(&mut page.continue_token);
            page.into_objects().into_items().try_for_each(&mut take)?;
            if continue_token.is_empty() {
                return Ok(resource_version);
            }
            if *pages >= PAGES_MAX {
                return Err(Failure::Malformed("a list of endless pages".to_owned()));
            }
            page =
                self.page(ListRequest { limit, continue_token, ..ListRequest::default() }).await?;
            // Pages of different resourceVersions are not one state (`docs/semantics.md` §3.10).
            if page.resource_version != resource_version {
                return Err(Failure::Expired);
            }
        }
    }

    async fn page(&self, request: ListRequest) -> Result<ListPage, Failure> {
        let listed = with_timeout(RESPONSE_TIMEOUT, self.cached.upstream.list(request)).await;
        if let Err(UpstreamError::TooLong(_)) = &listed {
            self.cached.context.metrics.budget_refusal("resource");
        }
        let page = listed?;
        self.learn_warnings();
        Ok(page)
    }
}

/// The largest number of pages of a list: five million objects at the default page size.
const PAGES_MAX: usize = 10_000;
