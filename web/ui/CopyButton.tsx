import { ActionIcon, Button, CopyButton as Copying, Tooltip } from '@mantine/core';
import { IconCheck, IconCopy } from './icons.tsx';

/** Copies a text, and confirms it for two seconds. Without a `label`, the button is an icon. */
export function CopyButton({ value, what, label }: { value: string; what: string; label?: string }) {
  return (
    <Copying value={value} timeout={2000}>
      {({ copied, copy }) =>
        label === undefined ? (
          <Tooltip label={copied ? 'Copied' : `Copy ${what}`} withArrow>
            <ActionIcon
              variant="subtle"
              color={copied ? 'green' : 'gray'}
              onClick={copy}
              aria-label={copied ? `${what} copied` : `Copy ${what}`}
            >
              {copied ? <IconCheck size={16} /> : <IconCopy size={16} />}
            </ActionIcon>
          </Tooltip>
        ) : (
          <Button
            variant="default"
            onClick={copy}
            leftSection={copied ? <IconCheck size={16} /> : <IconCopy size={16} />}
          >
            {copied ? 'Copied' : label}
          </Button>
        )
      }
    </Copying>
  );
}
