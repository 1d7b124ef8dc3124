import { Alert, Button, Group, Stack, Text } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';

/** What went wrong, with what support would ask for: the code and the request's id. */
export function FaultNotice({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { code, requestId, fields, message } = toldBy(error);
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={message} role="alert">
      <Stack gap="xs" align="flex-start">
        {fields.map((field) => (
          <Text key={field.path + field.message} size="sm">
            <b>{field.path}</b> {field.message}
          </Text>
        ))}
        <Group gap="xs">
          <Text size="sm" c="dimmed" ff="monospace">
            {code}
            {requestId !== undefined && ` · ${requestId}`}
          </Text>
          {onRetry && (
            <Button size="compact-sm" variant="default" onClick={onRetry}>
              Try again
            </Button>
          )}
        </Group>
      </Stack>
    </Alert>
  );
}

type Told = {
  code: string;
  message: string;
  requestId?: string;
  fields: { path: string; message: string }[];
};

function toldBy(error: unknown): Told {
  const { code = 'unknown', message, requestId, fields = [] } = error as Partial<Told>;
  return {
    code,
    message: message ?? 'Something went wrong.',
    fields,
    ...(requestId !== undefined && { requestId }),
  };
}
