import { Alert, Button, Group, Stack, Text } from '@mantine/core';
import { Dimmed } from './Dimmed.tsx';
import { IconAlertTriangle } from './icons.tsx';

/** An error with its code and request ID. */
export function FaultNotice({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { code, requestId, fields, message } = fieldsOfError(error);
  return (
    <Alert color="red" icon={<IconAlertTriangle size={18} />} title={message} role="alert">
      <Stack gap="xs" align="flex-start">
        {fields.map((field) => (
          <Text key={field.path + field.message} size="sm">
            <b>{field.path}</b> {field.message}
          </Text>
        ))}
        <Group gap="xs">
          <Dimmed ff="monospace">
            {code}
            {requestId !== undefined && ` · ${requestId}`}
          </Dimmed>
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

type ErrorFields = {
  code: string;
  message: string;
  requestId?: string;
  fields: { path: string; message: string }[];
};

function fieldsOfError(error: unknown): ErrorFields {
  const { code = 'unknown', message, requestId, fields = [] } = error as Partial<ErrorFields>;
  return {
    code,
    message: message ?? 'Something went wrong.',
    fields,
    ...(requestId !== undefined && { requestId }),
  };
}
