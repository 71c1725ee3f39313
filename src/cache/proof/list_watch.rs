//! The upstream calls of proofs, as trait objects.
//!
//! A cache does not carry the type of its lister-watcher, so that its users need no type parameter.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::cache::cluster_identity::IdentifyCluster;
use crate::cache::probe::{Probed, probe};
use crate::cache::progress::Probe;
use crate::codec::list::ListPage;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    ExactRequest, ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};

/// An object-safe [`ListWatch`] of one resource, representation and scope.
pub(crate) trait DynListWatch: Probe + IdentifyCluster {
    /// Calls [`ListWatch::list`].
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, UpstreamError>>;

    /// Calls [`ListWatch::exact`].
    fn exact(&self, request: ExactRequest) -> BoxFuture<'_, Result<ListPage, UpstreamError>>;

    /// Calls [`ListWatch::is_local`].
    fn is_local(&self) -> BoxFuture<'_, bool>;

    /// Calls [`ListWatch::leave_server`].
    fn leave_server(&self) -> bool;

    /// Calls [`ListWatch::watch`].
    fn watch(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<Box<dyn DynWatchStream>, UpstreamError>>;
}

/// An object-safe [`WatchStream`].
pub(crate) trait DynWatchStream: Send {
    /// Calls [`WatchStream::next`].
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<UpstreamEvent>>, UpstreamError>>;
}

impl<L: ListWatch> Probe for L {
    fn probe(&self) -> BoxFuture<'_, Result<Probed, UpstreamError>> {
        probe(self).boxed()
    }
}

impl<L: ListWatch> IdentifyCluster for L {
    fn uid(&self) -> BoxFuture<'_, Result<Option<String>, UpstreamError>> {
        self.cluster_uid().boxed()
    }

    fn connections_opened(&self) -> u64 {
        ListWatch::connections_opened(self)
    }
}

impl<L: ListWatch> DynListWatch for L {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, UpstreamError>> {
        ListWatch::list(self, request).boxed()
    }

    fn exact(&self, request: ExactRequest) -> BoxFuture<'_, Result<ListPage, UpstreamError>> {
        ListWatch::exact(self, request).boxed()
    }

    fn is_local(&self) -> BoxFuture<'_, bool> {
        ListWatch::is_local(self).boxed()
    }

    fn leave_server(&self) -> bool {
        ListWatch::leave_server(self)
    }

    fn watch(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<Box<dyn DynWatchStream>, UpstreamError>> {
        let watch = ListWatch::watch(self, request);
        async { Ok(Box::new(watch.await?) as Box<dyn DynWatchStream>) }.boxed()
    }
}

impl<W: WatchStream> DynWatchStream for W {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<UpstreamEvent>>, UpstreamError>> {
        WatchStream::next(self).boxed()
    }
}
