//! The list of the admin listener's paths, for whoever opens it without a browser.

/// The list of the paths.
pub(super) const INDEX: &str = "\
Weir, a caching read-through proxy for the Kubernetes API

/livez            the process is alive
/readyz           it can serve; ?verbose names each check, ?exclude=NAME leaves one out
/readyz/NAME      one check
/metrics          in Prometheus' text format
/metrics/slis     the results of health checks, as Kubernetes' components show them

For local clients only (kubectl port-forward POD 6441, and then http://localhost:6441/):

/                 in a browser: a live page
/api/overview     whether all is well, what Weir saves
/api/caches       the caches; ?limit=N, ?sort=FIELD
/api/clients      what clients cost; ?limit=N
/api/findings     what clients could do better
/api/reasons      why requests are forwarded
/api/events       the last notable events; ?since=NUMBER
/api/limits       what is used of each limit
/api/shadow       how caches compare with the API server, in shadow mode; ?format=text
/statusz          version, start and paths; and /flagz, /configz
/debug/...        memory, connections (?limit=N), log, log/lines,
                  caches/GROUP/VERSION/RESOURCE (?namespace=NAME),
                  and a POST of relist/GROUP/VERSION/RESOURCE, for a new list
";
