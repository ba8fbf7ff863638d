//! Clients that wait while this server serves nobody: how long it keeps their connections.
//!
//! A server that loses its leader usually has another one within a fifth of a second. Its clients,
//! and clients that come meanwhile, wait for that. A client library waits for an answer for a third
//! of the session timeout. A server that has no leader by then closes the connection, so that the
//! client finds another server.
//!
//! A server that serves again may have thousands of these clients, and less room for their sessions.
//! Each of them gets its session when there is room for it, or is closed when its wait ends.

use super::Server;
use super::admission::Admission;
use super::touch::{KEPT_MS, Touches};
use crate::seam::ids::ConnId;
use crate::sessions::{Connection, Newcomer, Phase, Waiting};
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::IpAddr;
use zoolet_model::{ConnectRequest, SessionSecret};

/// Returns a copy of a request that holds no part of the frame in which it came.
///
/// No session has a password of another length than a secret has, so such a password is left out.
fn without_frame(request: &ConnectRequest) -> ConnectRequest {
    let password = request.password.as_deref().filter(|password| password.len() == size_of::<SessionSecret>());
    ConnectRequest { password: password.map(Bytes::copy_from_slice), ..request.clone() }
}

/// Waits of new clients end at multiples of this time.
const TOGETHER_MS: u64 = 50;

impl Server {
    /// Returns how long a client with this session timeout waits for an answer, in milliseconds.
    fn patience_of(&self, timeout_ms: u32) -> u64 {
        KEPT_MS.min(self.settings.staleness_max_ms.into()).min(u64::from(timeout_ms) * 3 / 10)
    }

    /// Returns when this server stopped serving, suspected its leader or started, in milliseconds.
    fn serves_nobody_since_ms(&self) -> u64 {
        let Touches { lost_at_ms, hands_over_ms, doubts_since_ms, .. } = self.touches;
        let since_ms = lost_at_ms.or(self.leaderless.lost_at_ms()).or(hands_over_ms).or(doubts_since_ms);
        since_ms.unwrap_or(self.now.mono_ms)
    }

    /// Returns until when this server keeps a connection although it serves nobody, in milliseconds.
    pub(super) fn kept_until_ms(&self, connection: &Connection) -> u64 {
        let lost_at_ms = self.serves_nobody_since_ms();
        let (joined_ms, asked_ms) = connection.joined;
        if connection.phase == Phase::Joining {
            return (joined_ms.max(lost_at_ms) + self.patience_of(asked_ms)).min(lost_at_ms + KEPT_MS);
        }
        let timeout_ms = self.live(connection.session).map_or(0, |live| live.timeout_ms);
        let until_ms = lost_at_ms + self.patience_of(timeout_ms);
        // Reads are answered meanwhile. The age of the state counts from when it was last current.
        let outdated_ms = |current_ms| current_ms + u64::from(self.settings.staleness_max_ms);
        self.leaderless.lost_at_ms().map_or(until_ms, |current_ms| until_ms.min(outdated_ms(current_ms)))
    }

    /// Returns whether a client that comes now waits until this server serves.
    ///
    /// The state is too old for clients after a pause, or beside a leader that is silent.
    pub(super) fn keeps_newcomers(&self, request: &ConnectRequest) -> bool {
        let joined = (self.now.mono_ms, self.negotiate(request.timeout_ms));
        let connection = Connection { joined, ..Connection::new(None, false) };
        !self.failed && !self.is_stale() && self.kept_until_ms(&connection) > self.now.mono_ms
    }

    /// Lets a new client wait. Thousands may come at once, so no other connection is examined.
    pub(super) fn keep_newcomer(&mut self, conn: ConnId, request: &ConnectRequest) {
        // Clients that come one after the other are closed together. Each closing looks at all of them.
        let until_ms = self.connections.get(&conn).map(|one| self.kept_until_ms(one) / TOGETHER_MS * TOGETHER_MS);
        let (Some(until_ms), Some(connection)) = (until_ms, self.connections.get_mut(&conn)) else { return };
        connection.newcomer = Some(Box::new(Newcomer { request: without_frame(request), until_ms }));
        self.newcomers.insert(conn);
        self.close_no_later_than(until_ms);
    }

    fn close_no_later_than(&mut self, until_ms: u64) {
        self.touches.keep_until_ms = self.touches.keep_until_ms.into_iter().chain([until_ms]).min();
    }

    /// Lets clients in that came while this server served nobody.
    pub(super) fn admit_newcomers(&mut self) {
        for conn in std::mem::take(&mut self.newcomers) {
            self.admit_newcomer(conn);
        }
    }

    /// Lets clients in that wait for room for their sessions. Those that came first go first. If the
    /// server has begun to refuse sessions, it closes their connections.
    pub(super) fn admit_newcomers_with_room(&mut self) {
        while !self.newcomers.is_empty()
            && self.takes_requests()
            && self.admission_of_newcomer() != Admission::Wait
            && let Some(conn) = self.newcomers.pop_first()
        {
            self.admit_newcomer(conn);
        }
    }

    fn admit_newcomer(&mut self, conn: ConnId) {
        let Some((peer, newcomer, waiting)) = self.take_newcomer(conn) else { return };
        self.on_connect(conn, peer, &newcomer.request);
        self.give_back(conn, waiting);
        if let Some(again) = self.connections.get_mut(&conn).and_then(|connection| connection.newcomer.as_mut()) {
            // It lacks room. The wait is still the same one.
            again.until_ms = newcomer.until_ms;
            self.close_no_later_than(newcomer.until_ms);
        }
    }

    /// Returns what a waiting client has sent, with its address.
    fn take_newcomer(&mut self, conn: ConnId) -> Option<(Option<IpAddr>, Box<Newcomer>, VecDeque<Waiting>)> {
        self.newcomers.remove(&conn);
        let connection = self.connections.get_mut(&conn)?;
        let newcomer = connection.newcomer.take()?;
        Some((connection.identity.ip, newcomer, std::mem::take(&mut connection.waiting)))
    }

    /// Gives a connection the requests that its client sent while it waited to be let in.
    fn give_back(&mut self, conn: ConnId, waiting: VecDeque<Waiting>) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.phase != Phase::Closed
        {
            connection.waiting = waiting;
        }
    }

    /// Lets requests go on if a hand-over has failed, and this leader goes on.
    pub(super) fn resume_after_hand_over(&mut self) {
        if self.zab.is_handing_over() {
            if self.touches.hands_over_ms.is_none() {
                self.touches.hands_over_ms = Some(self.now.mono_ms);
                self.keep_connections();
            }
            return;
        }
        if self.touches.hands_over_ms.take().is_some() && self.leads() && self.takes_requests() {
            self.touches.keep_until_ms = None;
            self.admit_newcomers();
            self.ready.extend(self.connections.keys());
        }
    }

    /// Closes the connections that this server has kept long enough without serving them.
    pub(super) fn keep_connections(&mut self) {
        self.touches.keep_until_ms = None;
        let mut over = Vec::new();
        for (conn, until_ms) in self.kept() {
            if until_ms <= self.now.mono_ms {
                over.push(conn);
                continue;
            }
            self.close_no_later_than(until_ms);
            if let Some(newcomer) = self.connections.get_mut(&conn).and_then(|one| one.newcomer.as_mut()) {
                newcomer.until_ms = until_ms;
            }
        }
        for conn in over {
            match self.take_newcomer(conn) {
                Some((peer, newcomer, waiting))
                    if self.is_for_readers(&newcomer.request) && !self.is_behind(&newcomer.request) =>
                {
                    self.on_reader(conn, peer, &newcomer.request);
                    self.give_back(conn, waiting);
                }
                Some(_) | None => self.close(conn),
            }
        }
    }

    /// Returns the connections that this server keeps without serving them, and until when.
    fn kept(&self) -> Vec<(ConnId, u64)> {
        if self.takes_requests() {
            let newcomer = |conn: &ConnId| self.connections.get(conn)?.newcomer.as_ref();
            return self.newcomers.iter().filter_map(|conn| Some((*conn, newcomer(conn)?.until_ms))).collect();
        }
        let kept = self.connections.iter().filter(|(_, one)| one.phase != Phase::Closed && !one.is_reader);
        kept.map(|(&conn, connection)| (conn, self.kept_until_ms(connection))).collect()
    }
}
