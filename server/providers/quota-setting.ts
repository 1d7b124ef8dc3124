import type { ProviderQuota } from './definition.ts';

/**
 * A provider's quota with an integration's setting: `on`, `off`, or `Name=600, Other=120` if the provider has granted
 * other numbers. The default is `on`, and `off` for a test integration, since the sandbox counts only on request.
 * Undefined if it is off, or if the provider has none. Throws RangeError with a sentence about the setting.
 */
export function quotaWith(
  quota: ProviderQuota | undefined,
  { setting, isTest }: { setting: string | undefined; isTest: boolean },
): ProviderQuota | undefined {
  const text = setting?.trim() || (isTest ? 'off' : 'on');
  if (text === 'on' || quota === undefined) return quota;
  if (text === 'off') return undefined;
  const counts = new Map<string, number>();
  for (const part of text.split(',')) {
    const [, name = '', count = ''] = /^\s*([A-Za-z0-9._-]+)\s*=\s*([1-9]\d{0,8})\s*$/.exec(part) ?? [];
    if (!quota.limits.some((limit) => limit.name === name)) {
      const names = quota.limits.map((limit) => limit.name).join(', ');
      throw new RangeError(
        `must be "on", "off" or numbers such as ${names.split(',', 1)[0]}=600 for any of ${names}`,
      );
    }
    counts.set(name, Number(count));
  }
  const limits = quota.limits.map((limit) => {
    const count = counts.get(limit.name);
    if (count === undefined) return limit;
    // The burst scales with the limit.
    const burst = limit.burst && Math.max(1, Math.floor((limit.burst * count) / limit.count));
    return { ...limit, count, ...(burst !== undefined && { burst }) };
  });
  return { ...quota, limits };
}
