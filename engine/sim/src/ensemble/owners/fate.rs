//! Faults of clients that hold sessions.

use super::super::host::{Death, Host};
use super::super::world::{Happening, World};
use super::super::{MS, Rank, SECOND};
use crate::oracle::ClientId;
use zoolet_machine::txn::{self, Txn};
use zoolet_model::SessionId;

/// Interval of the checks whether the ensemble has closed a session, and their maximum duration.
const LOOKS_EVERY_US: u64 = 50 * MS;
const EXPIRES_US_MAX: u64 = 120 * SECOND;

/// A fault of a client.
///
/// For a client in a server's process, some faults hit that process, and so all clients in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// The client's process dies.
    ///
    /// Its futures are dropped, and no request of their destructors is sent. The kernel closes the
    /// connection.
    Crash,
    /// The client's machine loses power: as [`Fate::Crash`], but the connection stays open.
    PowerLoss,
    /// The client stands still for this many microseconds.
    ///
    /// It neither polls nor pings nor reads, and then receives all missed input at once. In a
    /// server's process only its futures stand still: the server pings and reads.
    Pause(u64),
    /// The client reaches no server for this many microseconds. Impossible in a server's process.
    Cut(u64),
    /// The next write succeeds, and the connection breaks before the answer. The session survives.
    LostReply,
    /// The session expires without the client's knowledge.
    ///
    /// The client reaches no server until the ensemble has closed the session. In a server's
    /// process, the whole process stands still until then; impossible if that server is the only
    /// one.
    Expiry,
}

impl Fate {
    /// The names of all fates.
    pub const NAMES: [&'static str; 6] = ["Crash", "PowerLoss", "Pause", "Cut", "LostReply", "Expiry"];

    /// Returns the name, without the duration.
    pub fn name(self) -> &'static str {
        Self::NAMES[match self {
            Self::Crash => 0,
            Self::PowerLoss => 1,
            Self::Pause(_) => 2,
            Self::Cut(_) => 3,
            Self::LostReply => 4,
            Self::Expiry => 5,
        }]
    }
}

/// A scheduled check of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ensemble) enum Due {
    /// The client's timers.
    Timer(ClientId),
    /// Whether its pause and its cut are over.
    End(ClientId),
    /// Whether its session was closed, by a committed entry after the first `seen` ones.
    Expiry { client: ClientId, session: SessionId, seen: usize, until_us: u64 },
}

impl World {
    /// Applies a fate to the client now; returns whether it was possible.
    pub fn strike_client(&mut self, client: ClientId, fate: Fate) -> bool {
        let now_us = self.now_us();
        let home = self.clients.get(&client).and_then(super::Client::home);
        let has_process = |home| self.hosts.get(&home).is_some_and(Host::is_running);
        let is_dead = self.owners.owned.get(&client).is_none_or(|owned| owned.is_dead);
        if is_dead || home.is_some_and(|home| !has_process(home)) || self.is_gone(client) {
            return false;
        }
        self.around.witness.trace.note(now_us, "**", || format!("{fate:?} of c{}", client.0));
        self.around.has_changed = true;
        match fate {
            Fate::Crash => self.kill(client, true),
            Fate::PowerLoss => self.kill(client, false),
            Fate::Pause(for_us) => self.pause_client_until(client, now_us.saturating_add(for_us)),
            Fate::Cut(_) if home.is_some() => return false,
            Fate::Cut(for_us) => self.cut_client_until(client, now_us.saturating_add(for_us)),
            Fate::LostReply => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.lose_next_reply();
                }
            }
            Fate::Expiry => return self.expire(client),
        }
        true
    }

    /// Pauses a client until [`World::resume_client`].
    pub fn pause_client(&mut self, client: ClientId) {
        self.strike_client(client, Fate::Pause(u64::MAX));
    }

    /// Lets a paused client continue; it first reads the input that it missed.
    pub fn resume_client(&mut self, client: ClientId) {
        if let Some(owned) = self.owners.owned.get_mut(&client) {
            owned.paused_until_us = None;
            self.wake_up(client);
        }
    }

    /// Cuts a client from all servers until [`World::heal_client`].
    pub fn cut_client(&mut self, client: ClientId) {
        self.strike_client(client, Fate::Cut(u64::MAX));
    }

    /// Ends a cut of the client.
    pub fn heal_client(&mut self, client: ClientId) {
        let now_us = self.now_us();
        if let Some(owned) = self.owners.owned.get_mut(&client) {
            owned.cut_until_us = None;
            self.around.wires.cut_off(now_us, client, false);
            self.wake_up(client);
        }
    }

    /// Ends all lasting fates of clients; dead clients stay dead.
    pub fn spare_clients(&mut self) {
        let ids: Vec<_> = self.owners.owned.keys().copied().collect();
        for id in ids {
            self.end_expiry(id);
            self.resume_client(id);
            self.heal_client(id);
        }
    }

    /// Runs a scheduled check.
    pub(in crate::ensemble) fn on_owner_due(&mut self, due: Due) {
        let now_us = self.now_us();
        match due {
            Due::Timer(client) => {
                if let Some(owned) = self.owners.owned.get(&client) {
                    owned.clock.ring();
                }
            }
            Due::End(client) => {
                let Some(owned) = self.owners.owned.get(&client) else { return };
                let is_over = |until_us: Option<u64>| until_us.is_some_and(|until_us| until_us <= now_us);
                let (pause, cut) = (is_over(owned.paused_until_us), is_over(owned.cut_until_us));
                if pause {
                    self.resume_client(client);
                }
                if cut {
                    self.heal_client(client);
                }
            }
            Due::Expiry { client, session, seen, until_us } => self.on_expiry(client, session, seen, until_us),
        }
    }

    /// Schedules an event at this instant, so that a client that waited continues.
    fn wake_up(&mut self, client: ClientId) {
        self.around.has_changed = true;
        let now_us = self.now_us();
        self.around.agenda.at(now_us, Rank::News, Happening::Owner(Due::Timer(client)));
    }

    fn pause_client_until(&mut self, client: ClientId, until_us: u64) {
        if let Some(owned) = self.owners.owned.get_mut(&client) {
            owned.paused_until_us = owned.paused_until_us.max(Some(until_us));
            self.end_at(until_us, client);
        }
    }

    fn cut_client_until(&mut self, client: ClientId, until_us: u64) {
        let now_us = self.now_us();
        if let Some(owned) = self.owners.owned.get_mut(&client) {
            owned.cut_until_us = owned.cut_until_us.max(Some(until_us));
            self.around.wires.cut_off(now_us, client, true);
            self.end_at(until_us, client);
        }
    }

    fn end_at(&mut self, until_us: u64, client: ClientId) {
        if until_us < u64::MAX {
            self.around.agenda.at(until_us, Rank::News, Happening::Owner(Due::End(client)));
        }
    }

    fn kill(&mut self, id: ClientId, has_power: bool) {
        let now_us = self.now_us();
        if let Some(home) = self.clients.get(&id).and_then(super::Client::home) {
            let fate = self.owners.random.bits();
            let death = if has_power { Death::Process } else { Death::Power(fate) };
            let away_us = self.owners.random.logarithmic(SECOND / 20, 8 * SECOND);
            self.with(home, |host, around| host.die(around, death));
            self.around.agenda.after(away_us, Happening::Start { server: home });
            return self.end_clients();
        }
        self.owners.bury(id);
        if let Some(client) = self.clients.get_mut(&id) {
            client.die(now_us, has_power, &mut self.around.wires, &mut self.around.witness);
        }
        self.resume_client(id);
    }

    fn expire(&mut self, id: ClientId) -> bool {
        let now_us = self.now_us();
        let Some(client) = self.clients.get(&id) else { return false };
        let (Some(session), home) = (client.session(), client.home()) else { return false };
        match home {
            Some(_) if self.hosts.len() == 1 => return false,
            Some(home) => self.with(home, Host::sleep),
            None => self.around.wires.cut_off(now_us, id, true),
        }
        if let Some(owned) = self.owners.owned.get_mut(&id) {
            owned.is_expiring = true;
        }
        let seen = self.witness().recorder.so_far().committed.len();
        let due = Due::Expiry { client: id, session, seen, until_us: now_us + EXPIRES_US_MAX };
        self.around.agenda.after(LOOKS_EVERY_US, Happening::Owner(due));
        true
    }

    fn on_expiry(&mut self, client: ClientId, session: SessionId, seen: usize, until_us: u64) {
        let now_us = self.now_us();
        if !self.owners.owned.get(&client).is_some_and(|owned| owned.is_expiring) {
            return;
        }
        let committed = &self.witness().recorder.so_far().committed;
        let ends_it = |payload: &[u8]| matches!(txn::decode(payload), Ok((_, Txn::CloseSession { session: closed })) if closed == session);
        let is_over = committed[seen..].iter().any(|entry| ends_it(&entry.payload));
        let is_other = self.clients.get(&client).and_then(super::Client::session) != Some(session);
        if is_over || is_other || now_us >= until_us {
            return self.end_expiry(client);
        }
        let due = Due::Expiry { client, session, seen: committed.len(), until_us };
        self.around.agenda.after(LOOKS_EVERY_US, Happening::Owner(due));
    }

    fn end_expiry(&mut self, client: ClientId) {
        let Some(owned) = self.owners.owned.get_mut(&client).filter(|owned| owned.is_expiring) else { return };
        owned.is_expiring = false;
        let is_cut = owned.cut_until_us.is_some();
        match self.clients.get(&client).and_then(super::Client::home) {
            Some(home) => self.with(home, Host::wake),
            None if !is_cut => self.heal_client(client),
            None => {}
        }
        self.wake_up(client);
    }
}
