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
	// write: the RPC changes something; it is logged at level info.
	write bool
}

// methods is the table of RPCs. Where an RPC names a policy, the handler asks for the same role for
// that name (Caller.require); where it names a sandbox, for its policy or for being the owner.
var methods = map[string]access{
	apiv1.PolicyService_Apply_FullMethodName:        {least: config.RoleAdmin, write: true},
	apiv1.PolicyService_Validate_FullMethodName:     {least: config.RoleViewer},
	apiv1.PolicyService_GetVersion_FullMethodName:   {least: config.RoleViewer},
	apiv1.PolicyService_List_FullMethodName:         {least: config.RoleViewer},
	apiv1.PolicyService_ListVersions_FullMethodName: {least: config.RoleViewer},
	apiv1.PolicyService_Rollback_FullMethodName:     {least: config.RoleOperator, write: true},
	apiv1.PolicyService_SetTag_FullMethodName:       {least: config.RoleOperator, write: true},
	apiv1.PolicyService_Delete_FullMethodName:       {least: config.RoleAdmin, write: true},

	apiv1.ProfileService_GetProfile_FullMethodName: {least: config.RoleViewer},

	apiv1.SandboxService_Start_FullMethodName:         {least: config.RoleUser, write: true},
	apiv1.SandboxService_Run_FullMethodName:           {least: config.RoleUser, write: true},
	apiv1.SandboxService_GetSandbox_FullMethodName:    {least: config.RoleUser},
	apiv1.SandboxService_ListSandboxes_FullMethodName: {least: config.RoleUser},
	apiv1.SandboxService_Wait_FullMethodName:          {least: config.RoleUser},
	apiv1.SandboxService_Signal_FullMethodName:        {least: config.RoleUser, write: true},
	apiv1.SandboxService_Logs_FullMethodName:          {least: config.RoleUser},
	apiv1.SandboxService_Remove_FullMethodName:        {least: config.RoleUser, write: true},
	apiv1.SandboxService_Usage_FullMethodName:         {least: config.RoleUser},

	apiv1.AdminService_Status_FullMethodName:     {least: config.RoleViewer},
	apiv1.AdminService_Events_FullMethodName:     {least: config.RoleOperator, global: true},
	apiv1.AdminService_Backup_FullMethodName:     {least: config.RoleAdmin, global: true, write: true},
	apiv1.AdminService_CheckStore_FullMethodName: {least: config.RoleAdmin, global: true},

	healthv1.Health_Check_FullMethodName:                                   {least: config.RoleNone},
	healthv1.Health_List_FullMethodName:                                    {least: config.RoleNone},
	healthv1.Health_Watch_FullMethodName:                                   {least: config.RoleNone},
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {least: config.RoleNone},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {least: config.RoleNone},
}
