package server

import (
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/config"
)

// access is what an RPC needs.
type access struct {
	least config.Role
	// global: the RPC belongs to no policy, and a grant limited to some does not count for it.
	global bool
	// doing is what a person calls it, behind "to".
	doing string
	// write: the RPC changes something; it is logged at level info.
	write bool
}

// methods is the table of RPCs. Where an RPC names a policy, the handler asks for the same role for
// that name (Caller.require); where it names a sandbox, for its policy or for being the owner.
var methods = map[string]access{
	apiv1.PolicyService_Apply_FullMethodName:        {least: config.RoleAdmin, doing: "apply documents", write: true},
	apiv1.PolicyService_Validate_FullMethodName:     {least: config.RoleViewer, doing: "validate documents"},
	apiv1.PolicyService_GetVersion_FullMethodName:   {least: config.RoleViewer, doing: "read documents"},
	apiv1.PolicyService_List_FullMethodName:         {least: config.RoleViewer, doing: "list documents"},
	apiv1.PolicyService_ListVersions_FullMethodName: {least: config.RoleViewer, doing: "read a history"},
	apiv1.PolicyService_Rollback_FullMethodName:     {least: config.RoleOperator, doing: "roll back", write: true},
	apiv1.PolicyService_SetTag_FullMethodName:       {least: config.RoleOperator, doing: "set tags", write: true},
	apiv1.PolicyService_Delete_FullMethodName:       {least: config.RoleAdmin, doing: "delete documents", write: true},

	apiv1.ProfileService_GetProfile_FullMethodName: {least: config.RoleViewer, doing: "read profiles"},
	apiv1.ProfileService_Resolve_FullMethodName:    {least: config.RoleViewer, doing: "resolve workloads"},

	apiv1.SandboxService_Start_FullMethodName:         {least: config.RoleUser, doing: "start programs", write: true},
	apiv1.SandboxService_Run_FullMethodName:           {least: config.RoleUser, doing: "start programs", write: true},
	apiv1.SandboxService_Attach_FullMethodName:        {least: config.RoleUser, doing: "attach to sandboxes", write: true},
	apiv1.SandboxService_GetSandbox_FullMethodName:    {least: config.RoleUser, doing: "see sandboxes"},
	apiv1.SandboxService_ListSandboxes_FullMethodName: {least: config.RoleUser, doing: "see sandboxes"},
	apiv1.SandboxService_Wait_FullMethodName:          {least: config.RoleUser, doing: "wait for sandboxes"},
	apiv1.SandboxService_Signal_FullMethodName:        {least: config.RoleUser, doing: "signal sandboxes", write: true},
	apiv1.SandboxService_Logs_FullMethodName:          {least: config.RoleUser, doing: "read logs"},
	apiv1.SandboxService_Remove_FullMethodName:        {least: config.RoleUser, doing: "remove sandboxes", write: true},
	apiv1.SandboxService_Usage_FullMethodName:         {least: config.RoleUser, doing: "see the usage of sandboxes"},

	apiv1.ContainerService_ListContainers_FullMethodName: {least: config.RoleViewer, doing: "list containers"},

	apiv1.AdminService_Status_FullMethodName:     {least: config.RoleViewer, doing: "see policyd's status"},
	apiv1.AdminService_Events_FullMethodName:     {least: config.RoleOperator, doing: "read events", global: true},
	apiv1.AdminService_Backup_FullMethodName:     {least: config.RoleAdmin, doing: "back up the store", global: true, write: true},
	apiv1.AdminService_CheckStore_FullMethodName: {least: config.RoleAdmin, doing: "check the store", global: true},

	apiv1.SmackService_Load_FullMethodName:        {least: config.RoleAdmin, doing: "load Smack policies", write: true},
	apiv1.SmackService_Unload_FullMethodName:      {least: config.RoleAdmin, doing: "unload the Smack policy", write: true},
	apiv1.SmackService_Revoke_FullMethodName:      {least: config.RoleAdmin, doing: "revoke a Smack label", write: true},
	apiv1.SmackService_GetSmack_FullMethodName:    {least: config.RoleViewer, doing: "see the host's Smack rules"},
	apiv1.SmackService_CheckAccess_FullMethodName: {least: config.RoleViewer, doing: "check Smack accesses"},

	healthv1.Health_Check_FullMethodName:                                   {least: config.RoleNone},
	healthv1.Health_List_FullMethodName:                                    {least: config.RoleNone},
	healthv1.Health_Watch_FullMethodName:                                   {least: config.RoleNone},
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {least: config.RoleNone},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {least: config.RoleNone},
}
