import { Box, Text } from '@mantine/core';
import { useState } from 'react';
import './json-tree.css';

/** Shown of one list or object; who wants more has the text. */
const maxChildren = 100;

/** JSON to be opened and closed level by level, by mouse or keyboard. What is closed costs nothing. */
export function JsonTree({ value }: { value: unknown }) {
  return (
    <Box className="json-tree framed" p="sm" tabIndex={0} role="group" aria-label="The answer as a tree">
      <Node value={value} depth={0} />
    </Box>
  );
}

function Node({ name, value, depth }: { name?: string; value: unknown; depth: number }) {
  const [isOpen, setOpen] = useState(depth < 2);
  const label = name !== undefined && <span className="json-name">{name}: </span>;
  if (typeof value !== 'object' || value === null) {
    return (
      <div className="json-leaf">
        {label}
        <span className={`json-${value === null ? 'null' : typeof value}`}>{spelled(value)}</span>
      </div>
    );
  }
  const children: [string, unknown][] = Object.entries(value);
  const isList = Array.isArray(value);
  const size = `${children.length} ${isList ? 'entries' : 'fields'}`;
  return (
    <details open={isOpen} onToggle={({ currentTarget: { open } }) => setOpen(open)}>
      <summary>
        {label}
        <Text span size="xs" c="dimmed">
          {isList ? '[ ' : '{ '}
          {children.length === 1 ? size.replace('entries', 'entry').replace('fields', 'field') : size}
          {isList ? ' ]' : ' }'}
        </Text>
      </summary>
      {isOpen && (
        <div className="json-children">
          {children.slice(0, maxChildren).map(([key, child]) => (
            <Node key={key} name={key} value={child} depth={depth + 1} />
          ))}
          {children.length > maxChildren && (
            <Text size="xs" c="dimmed">
              and {(children.length - maxChildren).toLocaleString()} more
            </Text>
          )}
        </div>
      )}
    </details>
  );
}

function spelled(value: unknown): string {
  const text = JSON.stringify(value) ?? '';
  return text.length > 2_000 ? `${text.slice(0, 2_000)}…` : text;
}
