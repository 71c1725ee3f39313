//! PriorityLevelConfigurations of `flowcontrol.apiserver.k8s.io/v1`, parsed and validated.
//!
//! Only what classification and the estimate of seats use is kept. The checks are those of
//! kube-apiserver (`pkg/apis/flowcontrol/validation/validation.go`).

use std::sync::Arc;

use serde::Deserialize;

use crate::flow::object::{InvalidObject, RawObject, check};
use crate::flow::schema::EXEMPT;

/// A priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityLevel {
    /// Its name.
    pub name: Arc<str>,
    /// `nominalConcurrencyShares`.
    pub shares: u32,
    /// The size of a hand of queues; `None` for a level without queues.
    pub hand_size: Option<u32>,
}

impl PriorityLevel {
    /// Parses and validates an object in JSON.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        let (name, spec) = RawObject::<RawSpec>::parse(json)?;
        let is_exempt = &*spec.kind == "Exempt";
        let field = "spec.type";
        check(is_exempt || &*spec.kind == "Limited", field, "is neither Exempt nor Limited")?;
        check(is_exempt == (&*name == EXEMPT), field, "is Exempt only for the level \"exempt\"")?;
        match (spec.exempt, spec.limited) {
            (exempt, None) if is_exempt => {
                let exempt = exempt.unwrap_or_default();
                let shares = exempt.checked("spec.exempt", 0)?;
                Ok(Self { name, shares, hand_size: None })
            }
            (None, Some(RawLimited { lending, limit_response })) if !is_exempt => {
                let shares = lending.checked("spec.limited", SHARES_DEFAULT)?;
                Ok(Self { name, shares, hand_size: limit_response.hand_size()? })
            }
            _ => check(false, "spec", "has not exactly the part of its type").map(|()| Self {
                name,
                shares: 0,
                hand_size: None,
            }),
        }
    }
}

#[derive(Deserialize)]
struct RawSpec {
    #[serde(default, rename = "type")]
    kind: Box<str>,
    exempt: Option<RawLending>,
    limited: Option<RawLimited>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLending {
    nominal_concurrency_shares: Option<i32>,
    lendable_percent: Option<i32>,
    borrowing_limit_percent: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLimited {
    #[serde(flatten)]
    lending: RawLending,
    limit_response: RawLimitResponse,
}

#[derive(Deserialize)]
struct RawLimitResponse {
    #[serde(default, rename = "type")]
    kind: Box<str>,
    queuing: Option<RawQueuing>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawQueuing {
    #[serde(default)]
    queues: i64,
    #[serde(default)]
    hand_size: i64,
    #[serde(default)]
    queue_length_limit: i64,
}

impl RawLending {
    /// Returns the shares, if all numbers are valid.
    fn checked(&self, field: &'static str, shares: u32) -> Result<u32, InvalidObject> {
        let lendable = self.lendable_percent.unwrap_or(0);
        check((0..=100).contains(&lendable), field, "has a lendablePercent beyond 0 to 100")?;
        let borrowing = self.borrowing_limit_percent.unwrap_or(0);
        check(borrowing >= 0, field, "has a negative borrowingLimitPercent")?;
        match self.nominal_concurrency_shares.map(u32::try_from) {
            None => Ok(shares),
            Some(Ok(shares)) => Ok(shares),
            Some(Err(_)) => check(false, field, "has negative shares").map(|()| 0),
        }
    }
}

impl RawLimitResponse {
    fn hand_size(self) -> Result<Option<u32>, InvalidObject> {
        let field = "spec.limited.limitResponse";
        match (&*self.kind, self.queuing) {
            ("Reject", None) => Ok(None),
            ("Queue", Some(queuing)) => queuing.hand_size().map(Some),
            _ => check(false, field, "is neither Reject nor Queue with its numbers").map(|()| None),
        }
    }
}

impl RawQueuing {
    fn hand_size(&self) -> Result<u32, InvalidObject> {
        let field = "spec.limited.limitResponse.queuing";
        let or = |value: i64, default| if value == 0 { default } else { value };
        let (queues, hand) = (or(self.queues, QUEUES_DEFAULT), or(self.hand_size, HAND_DEFAULT));
        check(self.queue_length_limit >= 0, field, "has a negative queueLengthLimit")?;
        check((1..=QUEUES_MAX).contains(&queues), field, "has queues beyond 1 to 10000000")?;
        check((1..=queues).contains(&hand), field, "has a handSize beyond 1 to queues")?;
        // `shufflesharding.RequiredEntropyBits`: a hash of 60 bits must suffice for the hand.
        let bits = i64::from(i64::BITS - (queues - 1).leading_zeros());
        check(bits * hand <= HASH_BITS, field, "has a handSize that is too large for its queues")?;
        Ok(u32::try_from(hand).unwrap_or(u32::MAX))
    }
}

const SHARES_DEFAULT: u32 = 30;
const QUEUES_DEFAULT: i64 = 64;
const HAND_DEFAULT: i64 = 8;
const QUEUES_MAX: i64 = 10_000_000;
const HASH_BITS: i64 = 60;
