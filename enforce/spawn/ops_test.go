package spawn

const opEnv = "POLICYD_SPAWN_TEST_OP"

func runOp(op string) int { return 99 }
