import { Alert, Text } from '@mantine/core';
import { IconAlertTriangle } from '../../ui/icons.tsx';

/** Below the field of an address: a warning if what is sent to it leaves this machine over plain http. */
export function PlainHttpNotice({ address }: { address: string }) {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url?.protocol !== 'http:' || /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname)) return null;
  return (
    <Alert color="yellow" role="status" icon={<IconAlertTriangle size={18} />} title="Not encrypted">
      <Text size="sm">
        Over http, events can be read and changed on their way. The service only sends to such an address if
        its setting TRELLIS_OUTBOUND_ALLOW covers it.
      </Text>
    </Alert>
  );
}
