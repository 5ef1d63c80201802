package profile

// Limits of a profile, held by Validate and by the decoder before it allocates.
const (
	MaxLayers   = 1024      // layers, before flattening
	MaxPathRows = 1 << 20   // rows of the table of paths
	MaxPortRows = 1 << 16   // rows of the table of ports: there are no more ports
	MaxPath     = 4095      // bytes of a path: PATH_MAX counts the final NUL
	MaxName     = 255       // bytes of a name and of a component of a path (NAME_MAX)
	MaxMasks    = 1 << 25   // rows times layers, of both tables together
	MaxEncoded  = 256 << 20 // bytes of an encoded profile
)
