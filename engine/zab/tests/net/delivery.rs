//! Links come up and break, and what is in flight on them arrives.

use super::link::{End, Item, Letter, Link};
use super::{Fact, Net, Wake, server_id};
use zoolet_zab::{LinkId, Message, Zxid};

/// Links and deliveries.
impl Net {
    /// Connects two servers; each end learns of the link from its stream's first item.
    pub(crate) fn connect(&mut self, a: u8, b: u8) -> LinkId {
        self.links += 1;
        let id = LinkId(self.links);
        self.say(|_| format!("a link comes up between {a} and {b}"));
        let disks = [a, b].map(|id| self.world.server(id).log.disk);
        self.world.links.insert(id, Link::new(id, [a, b], disks));
        for end in 0..2 {
            self.wakes.push(Wake::Stream { link: id, end });
        }
        id
    }

    /// Breaks a link.
    ///
    /// At each end, the first `arrive` items in flight still arrive, then the break.
    pub(crate) fn reset(&mut self, link: LinkId, arrive: [usize; 2]) {
        let Some(it) = self.world.links.get_mut(&link) else { return };
        if it.broken {
            return;
        }
        it.broken = true;
        let ids = it.ids;
        for (end, arrive) in arrive.into_iter().enumerate() {
            it.streams[end].truncate(arrive);
            it.parcels[end].clear();
            it.streams[end].push_back(Item::Down);
            self.wakes.push(Wake::Stream { link, end });
        }
        self.say(|_| format!("the link between {} and {} breaks", ids[0], ids[1]));
    }

    /// Drops one end of a link, because it closed or its process ended.
    ///
    /// Items it sent still arrive. The other end learns of it if `is_told`.
    pub(super) fn hang_up(&mut self, link: LinkId, by: u8, is_told: bool) {
        let Some(it) = self.world.links.get_mut(&link) else { return };
        let Some(end) = it.end_of(by) else { return };
        if it.ends[end] == End::Gone {
            return;
        }
        it.ends[end] = End::Gone;
        it.streams[end].clear();
        it.parcels[end].clear();
        if is_told && !it.broken {
            it.broken = true;
            it.streams[1 - end].push_back(Item::Down);
            self.wakes.push(Wake::Stream { link, end: 1 - end });
        }
    }

    /// Makes one end give up a link because it heard nothing for too long.
    pub(crate) fn time_out(&mut self, link: LinkId, end: usize) {
        let Some(it) = self.world.links.get_mut(&link) else { return };
        if it.ends[end] != End::Up {
            return;
        }
        let (me, peer) = (it.ids[end], it.ids[1 - end]);
        self.say(|_| format!("{me} gives up its link to {peer}"));
        self.hang_up(link, me, true);
        self.check(&Fact::Parted { by: me, peer });
        self.turn(me, |zab, now| zab.handle_link_down(now, server_id(peer), link));
    }

    /// Delivers the next item to this end.
    ///
    /// Returns false if no item is in flight or this direction is cut.
    pub(crate) fn deliver(&mut self, link: LinkId, end: usize) -> bool {
        let Some(it) = self.world.links.get_mut(&link) else { return false };
        if it.cut[end] {
            return false;
        }
        let (me, peer) = (it.ids[end], it.ids[1 - end]);
        let Some(item) = it.streams[end].pop_front() else { return false };
        if it.ends[end] == End::Gone || !self.world.servers[&me].runs() {
            return true;
        }
        match item {
            Item::Up => {
                it.ends[end] = End::Up;
                let disk = it.disks[1 - end];
                let older: Vec<LinkId> = self
                    .world
                    .links
                    .values()
                    .filter(|l| l.id < link && l.end_of(me).is_some() && l.end_of(peer).is_some())
                    .map(|l| l.id)
                    .collect();
                for older in older {
                    self.hang_up(older, me, true);
                }
                self.check(&Fact::Parted { by: me, peer });
                self.turn(me, |zab, now| zab.handle_link_up(now, server_id(peer), link, disk));
            }
            Item::Letter(letter) => self.hear(me, peer, link, letter),
            Item::Down => {
                self.hang_up(link, me, true);
                self.say(|_| format!("{me} finds its link to {peer} broken"));
                self.check(&Fact::Parted { by: me, peer });
                self.turn(me, |zab, now| zab.handle_link_down(now, server_id(peer), link));
            }
        }
        self.sweep(link);
        true
    }

    /// Delivers a datagram, possibly a duplicate.
    pub(crate) fn datagram(&mut self, link: LinkId, end: usize, message: Message) {
        let Some(it) = self.world.links.get(&link) else { return };
        let (me, peer) = (it.ids[end], it.ids[1 - end]);
        if it.cut[end] || it.ends[end] != End::Up || !self.world.servers[&me].runs() {
            return;
        }
        self.hear(me, peer, link, Letter { message, entries: Vec::new() });
    }

    /// Completes or fails the snapshot in flight to this end.
    pub(crate) fn parcel(&mut self, link: LinkId, end: usize, is_complete: bool) {
        let Some(it) = self.world.links.get_mut(&link) else { return };
        if it.cut[end] || it.ends[end] != End::Up {
            return;
        }
        let (me, peer) = (it.ids[end], it.ids[1 - end]);
        let Some(parcel) = it.parcels[end].pop_front() else { return };
        let server = &self.world.servers[&me];
        if !server.runs() || server.announced != Some((link, parcel.attempt)) {
            return;
        }
        self.server_mut(me).announced = None;
        let zxid = parcel.entries.last().map_or(Zxid::ZERO, |entry| entry.zxid);
        if is_complete {
            self.say(|_| format!("{me} has the snapshot of {peer} up to {zxid:?}"));
            self.server_mut(me).received = Some(parcel.entries);
            self.turn(me, |zab, now| zab.handle_snapshot(now, zxid));
            self.server_mut(me).received = None;
        } else {
            self.say(|_| format!("the snapshot of {peer} for {me} failed"));
            self.turn(me, |zab, now| zab.handle_snapshot_failed(now));
        }
    }

    /// Removes a link that both ends have left.
    fn sweep(&mut self, link: LinkId) {
        if self.world.links.get(&link).is_some_and(|link| link.ends == [End::Gone; 2]) {
            self.world.links.remove(&link);
        }
    }
}
