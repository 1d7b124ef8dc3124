import type { EventType } from './event-types.ts';

/**
 * The events that are sent to the addresses of the official clients (`webhook_url`, `webhook_url_secondary`, a
 * connection's `webhook_url_override`), each with the switch of the environment's settings that controls it.
 * `deliveries/send.ts` writes their bodies.
 */
export const compatTypes = {
  'connection.created': { switch: 'on_auth_creation' },
  // A new grant for an existing connection has no switch.
  'connection.reconnected': { switch: undefined },
  'connection.connect_failed': { switch: 'on_auth_creation' },
  'connection.needs_reauth': { switch: 'on_auth_refresh_error' },
  'connection.blocked': { switch: 'on_auth_refresh_error' },
  // Changes are sent regardless of the switch.
  'sync.changed': { switch: undefined },
  'sync.unchanged': { switch: 'on_sync_completion_always' },
  'sync.failed': { switch: 'on_sync_error' },
  'action.succeeded': { switch: 'on_async_action_completion' },
  'action.failed': { switch: 'on_async_action_completion' },
  // The integration's `forward_webhooks` already controls it.
  'webhook.received': { switch: undefined },
} as const satisfies Partial<Record<EventType, { switch: EventSwitch | undefined }>>;

export type CompatType = keyof typeof compatTypes;

/** The switches of an environment, on by default. */
export const eventSwitches = [
  'on_auth_creation',
  'on_auth_refresh_error',
  'on_sync_completion_always',
  'on_sync_error',
  'on_async_action_completion',
] as const;
export type EventSwitch = (typeof eventSwitches)[number];
