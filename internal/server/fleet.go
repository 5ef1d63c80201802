package server

import (
	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/store"
)

// SetFleet gives what Status tells of the fleet's channel that this host follows.
func (s *Server) SetFleet(status func() *apiv1.FleetStatus) { s.fleet.Store(&status) }

func (s *Server) fleetStatus() *apiv1.FleetStatus {
	if f := s.fleet.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// StoreChanged forgets what is kept in memory of the store, after somebody else of this process has changed it.
func (s *Server) StoreChanged() {
	s.bindingsChanged()
	s.changed()
	s.tellHealth()
}

// checkFleetSmack refuses to put another policy in the place of the one that the fleet's bundle gives to this host.
func (s *Server) checkFleetSmack() error {
	st, err := s.store.SmackState()
	if err != nil {
		return err
	}
	for _, name := range []string{st.GetAssigned(), st.GetPolicy()} {
		if name == "" {
			continue
		}
		if err := s.store.CheckFleet(store.KindSmackPolicy, name, true); err != nil {
			return err
		}
	}
	return nil
}

// Reason is the stable reason that a client sees of an error, "" of one that has none.
func Reason(err error) string {
	row, known := lookupCode(err)
	if !known {
		return ""
	}
	return row.reason
}
