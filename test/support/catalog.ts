import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';

/** The definitions that ship, read once in a process: that takes a quarter of the time in which a service starts. */
export const shippedCatalog = loadCatalog(providersDirectory, authModes);
