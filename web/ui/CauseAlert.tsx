import { Alert, Code, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { IconAlertTriangle, IconCircleX } from './icons.tsx';
import { RelativeTime } from './RelativeTime.tsx';

/** A problem with its cause, its time, the next step and the evidence. */
export function CauseAlert({
  color,
  title,
  at,
  since = 'since',
  nextStep,
  evidence,
  children,
}: {
  color: 'red' | 'orange' | 'yellow';
  title: string;
  at: string | null;
  /** Between the title and the time. */
  since?: string;
  nextStep: string | null;
  evidence: Record<string, string | number> | null;
  children?: ReactNode;
}) {
  const Icon = color === 'red' ? IconCircleX : IconAlertTriangle;
  const codes = Object.entries(evidence ?? {});
  return (
    <Alert
      color={color}
      icon={<Icon size={18} />}
      title={
        <>
          {title}
          {at !== null && (
            <Text span size="sm" c="dimmed" fw={400}>
              {` ${since} `}
              <RelativeTime at={at} />
            </Text>
          )}
        </>
      }
    >
      {nextStep !== null && <Text size="sm">{nextStep}</Text>}
      {children}
      {codes.length > 0 && (
        <Text size="sm" c="dimmed" mt={4} component="div">
          {codes.map(([name, value]) => (
            <Code key={name} mr={6} className="wrap">
              {name}: {String(value)}
            </Code>
          ))}
        </Text>
      )}
    </Alert>
  );
}
