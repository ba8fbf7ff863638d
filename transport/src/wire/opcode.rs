//! Request opcodes (surface 2.1).

/// A request that a client may send.
///
/// The opcodes that servers use among themselves (createSession, deleteContainer, error) are
/// unknown here, so a client that sends one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum Opcode {
    Create = 1,
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetAcl = 6,
    SetAcl = 7,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    GetChildren2 = 12,
    Check = 13,
    Multi = 14,
    Create2 = 15,
    Reconfig = 16,
    CheckWatches = 17,
    RemoveWatches = 18,
    CreateContainer = 19,
    CreateTtl = 21,
    MultiRead = 22,
    Auth = 100,
    SetWatches = 101,
    Sasl = 102,
    GetEphemerals = 103,
    GetAllChildrenNumber = 104,
    SetWatches2 = 105,
    AddWatch = 106,
    WhoAmI = 107,
    /// zoolet's own: how long a TTL znode still lives. No client of ZooKeeper sends this number.
    GetTtl = 0x7a6f_0001,
    CloseSession = -11,
}

impl Opcode {
    /// Returns the opcode's number on the wire.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Returns the opcode with this number; the reverse of [`Opcode::code`].
    pub const fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            1 => Self::Create,
            2 => Self::Delete,
            3 => Self::Exists,
            4 => Self::GetData,
            5 => Self::SetData,
            6 => Self::GetAcl,
            7 => Self::SetAcl,
            8 => Self::GetChildren,
            9 => Self::Sync,
            11 => Self::Ping,
            12 => Self::GetChildren2,
            13 => Self::Check,
            14 => Self::Multi,
            15 => Self::Create2,
            16 => Self::Reconfig,
            17 => Self::CheckWatches,
            18 => Self::RemoveWatches,
            19 => Self::CreateContainer,
            21 => Self::CreateTtl,
            22 => Self::MultiRead,
            100 => Self::Auth,
            101 => Self::SetWatches,
            102 => Self::Sasl,
            103 => Self::GetEphemerals,
            104 => Self::GetAllChildrenNumber,
            105 => Self::SetWatches2,
            106 => Self::AddWatch,
            107 => Self::WhoAmI,
            0x7a6f_0001 => Self::GetTtl,
            -11 => Self::CloseSession,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_30_opcodes_round_trip_through_their_codes() {
        let known = (-20..200).chain(0x7a6f_0000..0x7a6f_0010).filter(|code| match Opcode::from_code(*code) {
            Some(opcode) => {
                assert_eq!(opcode.code(), *code);
                true
            }
            None => false,
        });
        assert_eq!(known.count(), 30);
    }
}
