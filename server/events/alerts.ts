/**
 * The constants of alerts: messages to people at endpoints with the format `slack` or `email`. One alert reports all waiting
 * events of a type and an integration. `deliveries/` sends alerts, and `deliveries/alert-text.ts` writes their texts.
 */
import type { EventType } from './event-types.ts';

/** The default types of an endpoint for alerts: events that require an action by a person. */
export const alertTypes = [
  'connection.needs_reauth',
  'connection.blocked',
  'sync.failing',
  'integration.misconfigured',
  'integration.sunset',
  'endpoint.disabled',
] as const satisfies EventType[];

/** How long the first alert of a type and an integration waits for other events that it can report. */
export const alertDelayS = 30;
/** The shortest time between two alerts of a type and an integration. */
export const alertIntervalMs = 10 * 60_000;
/** The maximum number of events that one alert reports. */
export const maxAlertEvents = 10_000;
