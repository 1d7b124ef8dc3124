/**
 * The control routes under /_sandbox, by which a test, a script or a person sets the sandbox up and breaks it.
 *
 * JSON in, JSON out, snake_case on the wire. Authentication and errors are in answer.ts.
 */
import { ACCOUNT_ROUTES } from './account-routes.ts';
import { CLIENT_ROUTES } from './client-routes.ts';
import { EVENT_ROUTES } from './event-routes.ts';
import { FAULT_ROUTES } from './fault-routes.ts';
import type { ControlRoute } from './parts.ts';
import { QUOTA_ROUTES } from './quota-routes.ts';
import { SHEET_ROUTES } from './sheet-routes.ts';

/** The control routes by method and path below /_sandbox. */
export const CONTROL_ROUTES: Record<string, ControlRoute> = {
  ...ACCOUNT_ROUTES,
  ...CLIENT_ROUTES,
  ...EVENT_ROUTES,
  ...FAULT_ROUTES,
  ...QUOTA_ROUTES,
  ...SHEET_ROUTES,
};
